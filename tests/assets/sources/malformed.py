"""A hundred ways in which data can be wrong: each a function that damages a sound folder, and what the error must say.

A case is (form, damage, pattern, keys). `damage(folder, keys)` changes files or keys in place. The pattern must be found in
the error: it holds the file, the row or column, and the value.
"""

from __future__ import annotations

import gzip

import numpy as np
import polars as pl

from tests.assets.sources.own_data import write_gz

NAN = float("nan")


def csv_line(name, line, text):
    """Replaces a line (from 0) of a CSV file, gzipped or not."""

    def damage(folder, keys):
        path = folder / name
        packed = path.suffix == ".gz"
        content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
        lines = content.decode().splitlines()
        lines[line] = text
        content = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(content) if packed else content)

    return damage


def csv_field(name, line, field, text):
    """Replaces one field of a line of a CSV file."""

    def damage(folder, keys):
        path = folder / name
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        fields = content.decode().splitlines()[line].split(",")
        fields[field] = text
        csv_line(name, line, ",".join(fields))(folder, keys)

    return damage


def frame(name, change):
    """Rewrites a Parquet file through a function of its frame."""

    def damage(folder, keys):
        change(pl.read_parquet(folder / name)).write_parquet(folder / name)

    return damage


def cell(name, column, row, value):
    """Sets one cell of a Parquet file."""

    def change(table):
        values = table[column].to_list()
        values[row] = value
        return table.with_columns(pl.Series(column, values, dtype=table.schema[column]))

    return frame(name, change)


def cast(name, column, dtype):
    return frame(name, lambda table: table.with_columns(pl.col(column).cast(dtype)))


def cut(name, keep):
    """Keeps a share of a file's bytes."""

    def damage(folder, keys):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * keep)])

    return damage


def gone(name):
    return lambda folder, keys: (folder / name).unlink()


def bytes_of(name, content):
    return lambda folder, keys: (folder / name).write_bytes(content)


def key(**changes):
    return lambda folder, keys: keys.update(changes)


def rows(name, table):
    return lambda folder, keys: write_gz(folder / name, table)


def archive(name, **changes):
    """Rewrites arrays of an archive; None removes one, a function changes one."""

    def damage(folder, keys):
        with np.load(folder / name) as opened:
            arrays = dict(opened)
        for array, value in changes.items():
            arrays[array] = value(arrays[array]) if callable(value) else value
        np.savez(folder / name, **{array: value for array, value in arrays.items() if value is not None})

    return damage


def graph(change):
    """Loads the DGL file, changes the graph, and saves it."""

    def damage(folder, keys):
        import dgl

        loaded = dgl.load_graphs(str(folder / "graph.bin"))[0][0]
        changed = change(loaded)
        dgl.save_graphs(str(folder / "graph.bin"), [loaded if changed is None else changed])

    return damage


def ndata(name, value):
    """Sets or, for None, removes node data."""

    def change(loaded):
        import torch

        if value is None:
            del loaded.ndata[name]
        else:
            data = value(loaded.ndata[name].clone()) if callable(value) else value
            loaded.ndata[name] = torch.as_tensor(data)

    return graph(change)


def put(place, value):
    """Returns a function that sets one place of an array."""

    def change(array):
        array = array.copy() if isinstance(array, np.ndarray) else array
        array[place] = value
        return array

    return change


E, N = r"edges-0\.parquet", r"nodes\.parquet"
PARQUET = {
    "edge file gone": (key(edges="nowhere-*.parquet"), "matches no file"),
    "edge file cut": (cut("edges-0.parquet", 0.5), f"{E}.*cannot be read"),
    "edge file empty": (bytes_of("edges-0.parquet", b""), f"{E}.*cannot be read"),
    "edge file is text": (bytes_of("edges-0.parquet", b"src,dst\n0,1\n"), f"{E}.*cannot be read"),
    "second file cut": (cut("edges-1.parquet", 0.9), r"edges-1\.parquet.*cannot be read"),
    "no src": (frame("edges-0.parquet", lambda t: t.rename({"src": "source"})), f"{E}: has no column 'src'"),
    "no dst in one file": (frame("edges-1.parquet", lambda t: t.drop("dst")), r"edges-1\.parquet: has no column 'dst'"),
    "types differ by file": (cast("edges-1.parquet", "src", pl.String), "edges-1.*column 'src' is VARCHAR, but BIGINT"),
    "src is float": (
        lambda f, k: [cast(f"edges-{i}.parquet", "src", pl.Float64)(f, k) for i in (0, 1)],
        f"{E}: column 'src' is DOUBLE, which is no type of ids",
    ),
    "types differ by column": (
        lambda f, k: [cast(f"edges-{i}.parquet", "dst", pl.String)(f, k) for i in (0, 1)],
        "ids have different types: .*'dst' .* is VARCHAR",
    ),
    "src is null": (cell("edges-0.parquet", "src", 7, None), f"{E}: row 7: column 'src' is empty"),
    "dst is null in the second file": (
        cell("edges-1.parquet", "dst", 3, None),
        r"edges-1\.parquet: row 3: .*'dst' is empty",
    ),
    "src beyond range": (cell("edges-0.parquet", "src", 5, 60), f"1 of 300 edges .*{E}: row 5: 60 -> "),
    "src negative": (cell("edges-0.parquet", "src", 0, -1), f"1 of 300 edges .*{E}: row 0: -1 -> "),
    "dst beyond range in the second file": (
        cell("edges-1.parquet", "dst", 2, 999),
        r"edges-1\.parquet: row 2: \d+ -> 999",
    ),
    "no weight column": (key(weight_column="w"), f"{E}: has no column 'w'"),
    "weight is text": (key(weight_column="t", type_column=None), f"{E}: column 't' is VARCHAR, not numbers"),
    "weight is nan": (cell("edges-0.parquet", "v", 4, NAN), f"{E}: row 4: column 'v' is nan"),
    "weight is null": (cell("edges-0.parquet", "v", 4, None), f"{E}: row 4: column 'v' is empty"),
    "weight is infinite": (
        cell("edges-1.parquet", "v", 9, float("inf")),
        r"edges-1\.parquet: row 9: column 'v' is inf",
    ),
    "weight overflows": (cell("edges-0.parquet", "v", 4, 1e300), f"{E}.*cannot be read: .*FLOAT"),
    "type is null": (cell("edges-1.parquet", "t", 8, None), r"edges-1\.parquet: row 8: column 't' is empty"),
    "no id column": (key(id_column="node"), f"{N}: has no column 'node'; it has id"),
    "misspelt id column": (key(id_column="idd"), "did you mean 'id'"),
    "id is null": (cell("nodes.parquet", "id", 4, None), f"{N}: row 4: column 'id' is empty"),
    "id twice": (cell("nodes.parquet", "id", 4, 2), rf"1 node ids occur twice: '2' in .*{N}: row 2 and .*{N}: row 4"),
    "node missing": (frame("nodes.parquet", lambda t: t[:-1]), r"\d+ of 300 edges name a node"),
    "no nodes": (frame("nodes.parquet", lambda t: t[:0]), f"{N}: the node tables have no rows"),
    "no edges": (
        lambda f, k: [frame(f"edges-{i}.parquet", lambda t: t[:0])(f, k) for i in (0, 1)],
        f"{E}: the edge tables have no rows",
    ),
    "no feature column": (key(features="y2"), f"{N}: has no column 'y2'"),
    "pattern fits none": (key(features="q*"), r"no column fits features = 'q\*'; it has id"),
    "features are text": (key(features="part"), f"{N}: column 'part' is VARCHAR, not numbers"),
    "list beside text": (key(features=("x", "part")), f"{N}: column 'part' is VARCHAR, not numbers"),
    "ragged list": (cell("nodes.parquet", "x", 6, [1.0]), f"{N}: row 6: column 'x' has 1 values, the first list has 3"),
    "list is null": (cell("nodes.parquet", "x", 6, None), f"{N}: row 6: column 'x' is empty"),
    "nan in list": (cell("nodes.parquet", "x", 6, [0, NAN, 0]), f"{N}: row 6: place 1 of column 'x' is nan"),
    "null in list": (cell("nodes.parquet", "x", 6, [0, None, 0]), f"{N}: row 6: place 1 of column 'x' is nan"),
    "labels as text": (cast("nodes.parquet", "y", pl.String), f"{N}: column 'y' is VARCHAR, not class numbers"),
    "label beyond range": (cell("nodes.parquet", "y", 3, 60), f"{N}: row 3: column 'y' holds '60', not a class number"),
    "label too low": (cell("nodes.parquet", "y", 3, -2), f"{N}: row 3: column 'y' holds '-2'"),
    "unknown split": (cell("nodes.parquet", "part", 9, "dev"), f"{N}: row 9: column 'part' holds 'dev'"),
    "split without label": (cell("nodes.parquet", "part", 0, "train"), "no label"),
    "no split column": (key(split_column="split"), f"{N}: has no column 'split'"),
    "no name column": (key(name_column="name"), f"{N}: has no column 'name'"),
    "formats mixed": (key(edges=("edges-0.parquet", "edges.csv")), "edges names Parquet and text files"),
    "a folder": (key(edges="."), "which is not read|names? ends with none of"),
    "another ending": (key(edges="edges.bak"), r"edges\.bak: the name ends with none of"),
}
CSV = {
    "ragged row": (
        csv_line("edges.csv", 5, "1,2,3"),
        r"edges\.csv: line 6: the row has 3 fields, the first line has 2",
    ),
    "short row": (csv_line("edges.csv", 5, "1"), r"edges\.csv: line 6: the row has 1 fields"),
    "text id": (csv_field("edges.csv", 9, 0, "x1"), r"edges\.csv: row 8 \(line 10\): column 'src' holds 'x1'"),
    "fractional id": (csv_field("edges.csv", 9, 1, "1.5"), r"row 8 \(line 10\): column 'dst' holds '1.5'"),
    "hexadecimal id": (csv_field("edges.csv", 9, 1, "0x1"), "column 'dst' holds '0x1'"),
    "empty id": (csv_field("edges.csv", 9, 1, ""), r"row 8 \(line 10\): column 'dst' is empty"),
    "huge id": (csv_field("edges.csv", 9, 1, "9" * 25), "column 'dst' holds '99999"),
    "open quote": (csv_field("edges.csv", 9, 1, '"4'), r"edges\.csv: line 10"),
    "empty file": (bytes_of("edges.csv", b""), r"edges\.csv: the file is empty"),
    "header twice": (csv_line("edges.csv", 0, "src,src"), r"edges\.csv: the header line has the column 'src' twice"),
    "header missing": (csv_line("edges.csv", 0, "a,9"), r"edges\.csv: has no column 'src'; it has a, 9"),
    "not UTF-8": (bytes_of("edges.csv", b"src,dst\n0,1\n\xff\xfe,3\n"), r"edges\.csv.*UTF-8"),
    "header not UTF-8": (bytes_of("edges.csv", b"\xff\xfes\x00r\x00"), r"edges\.csv: the text is not UTF-8"),
    "wrong delimiter": (key(delimiter=";"), r"edges\.csv: has no column 'src' .*it has src,dst"),
    "truncated gzip": (cut("nodes.csv.gz", 0.7), r"nodes\.csv\.gz.*(gzip|end)"),
    "gzip without its end": (cut("nodes.csv.gz", 0.999), r"nodes\.csv\.gz.*(gzip|end)"),
    "no gzip": (bytes_of("nodes.csv.gz", b"id,y\n0,1\n"), r"nodes\.csv\.gz"),
    "node id twice": (
        csv_line("nodes.csv.gz", 3, "0,0,0,0,,"),
        r"1 node ids occur twice: '0' in .*nodes\.csv\.gz: row",
    ),
    "text feature": (
        csv_field("nodes.csv.gz", 5, 2, "high"),
        r"line 6.*: column 'f1' holds 'high', which is no number",
    ),
    "empty feature": (csv_field("nodes.csv.gz", 5, 2, ""), r"row 4 \(line 6\): column 'f1' is empty"),
    "nan feature": (csv_field("nodes.csv.gz", 5, 2, "nan"), r"row 4 \(line 6\): column 'f1' is nan"),
    "text label": (csv_field("nodes.csv.gz", 5, 4, "cat"), r"row 4 \(line 6\): column 'y' holds 'cat'"),
    "fractional label": (csv_field("nodes.csv.gz", 5, 4, "0.5"), "column 'y' holds '0.5'"),
    "text id after integers": (csv_field("nodes.csv.gz", 8, 0, "n7"), r"row 7 \(line 9\): column 'id' holds 'n7'.*"),
}
RAW, SPLIT = "ogbn_text/raw", "ogbn_text/split/time"
OGB_TEXT = {
    "no folder": (lambda f, k: k.update(path=f / "nothing"), "nothing does not exist"),
    "a file": (lambda f, k: k.update(path=f / RAW / "edge.csv.gz"), "is a file"),
    "no raw folder": (lambda f, k: k.update(path=f / SPLIT), "holds neither raw/ nor processed/"),
    "edges gone": (gone(f"{RAW}/edge.csv.gz"), r"edge\.csv\.gz is missing"),
    "node count gone": (gone(f"{RAW}/num-node-list.csv.gz"), r"num-node-list\.csv\.gz is missing"),
    "edge count gone": (gone(f"{RAW}/num-edge-list.csv.gz"), r"num-edge-list\.csv\.gz is missing"),
    "labels gone": (gone(f"{RAW}/node-label.csv.gz"), r"node-label\.csv\.gz is missing"),
    "part of the split gone": (gone(f"{SPLIT}/valid.csv.gz"), r"valid\.csv\.gz is missing"),
    "no such split": (key(split="sales"), r"split = sales: .* holds time"),
    "edges cut": (cut(f"{RAW}/edge.csv.gz", 0.6), r"edge\.csv\.gz.*(gzip|end)"),
    "features cut": (cut(f"{RAW}/node-feat.csv.gz", 0.6), r"node-feat\.csv\.gz.*(gzip|end)"),
    "split cut": (cut(f"{SPLIT}/train.csv.gz", 0.5), r"train\.csv\.gz.*(gzip|end)"),
    "edge beyond range": (
        csv_line(f"{RAW}/edge.csv.gz", 4, "3,60"),
        r"destination outside \[0, 60\).*row 4 \(line 5\): 3 -> 60",
    ),
    "edge negative": (csv_line(f"{RAW}/edge.csv.gz", 4, "-3,6"), r"source outside .*row 4 \(line 5\): -3 -> 6"),
    "edge of text": (csv_line(f"{RAW}/edge.csv.gz", 4, "a,6"), r"row 4 \(line 5\): column 0 holds 'a'"),
    "edge with three ends": (
        csv_line(f"{RAW}/edge.csv.gz", 4, "1,2,3"),
        r"edge\.csv\.gz: line 5: the row has 3 fields",
    ),
    "edges missing": (rows(f"{RAW}/edge.csv.gz", [[0, 1]] * 9), "the edges end here, but 300 are announced"),
    "two graphs": (rows(f"{RAW}/num-node-list.csv.gz", [[30], [30]]), r"num-node-list\.csv\.gz: has 2 counts, not one"),
    "features missing": (
        rows(f"{RAW}/node-feat.csv.gz", [[0, 1]] * 9),
        r"node-feat\.csv\.gz.* has 9 rows .* for 60 nodes",
    ),
    "too many features": (rows(f"{RAW}/node-feat.csv.gz", [[0, 1]] * 61), "has more than 60 rows"),
    "nan in features": (csv_line(f"{RAW}/node-feat.csv.gz", 7, "0,nan,0"), r"row 7 \(line 8\): column 'c1' is nan"),
    "text in features": (csv_line(f"{RAW}/node-feat.csv.gz", 7, "0,x,0"), r"line 8.*: column 'c1' holds 'x'"),
    "labels as text": (csv_line(f"{RAW}/node-label.csv.gz", 2, "cat"), r"row 2 \(line 3\): the label is 'cat'"),
    "labels missing": (rows(f"{RAW}/node-label.csv.gz", [[0]] * 9), "has 9 labels for 60 nodes"),
    "several tasks": (rows(f"{RAW}/node-label.csv.gz", [[0, 1]] * 60), "has 2 columns of labels"),
    "split beyond range": (
        rows(f"{SPLIT}/test.csv.gz", [[60]]),
        r"test\.csv\.gz: 1 ids are outside \[0, 60\): row 0 is 60",
    ),
    "split overlaps": (
        rows(f"{SPLIT}/test.csv.gz", [[i] for i in range(60)]),
        "ogbn_text: the split .*\n.*train and test overlap",
    ),
}
DATA, LABEL = "ogbn_binary/raw/data.npz", "ogbn_binary/raw/node-label.npz"
OGB_BINARY = {
    "archive cut": (cut(DATA, 0.5), r"data\.npz: is no npz archive, or a truncated one"),
    "no edges": (archive(DATA, edge_index=None), r"data\.npz: has no array 'edge_index'"),
    "no node count": (archive(DATA, num_nodes_list=None), r"data\.npz: has no array 'num_nodes_list'"),
    "edges of floats": (archive(DATA, edge_index=lambda a: a * 1.0), r"edge_index is float64\[2, 300\]"),
    "edges transposed": (
        archive(DATA, edge_index=lambda a: a.T),
        r"edge_index is int64\[300, 2\], not integers \[2, 300\]",
    ),
    "edge beyond range": (archive(DATA, edge_index=put((1, 8), 77)), r"edge_index column 8: \d+ -> 77"),
    "nan in features": (archive(DATA, node_feat=put((5, 2), NAN)), r"node_feat row 5 column 2 is nan"),
    "features missing": (
        archive(DATA, node_feat=lambda a: a[:9]),
        r"node_feat is float32\[9, 3\], not numbers \[60, F\]",
    ),
    "pickled features": (archive(DATA, node_feat=np.array([{}], object)), "pickled Python objects"),
    "labels gone": (gone(LABEL), r"node-label\.npz is missing"),
    "labels as text": (
        archive(LABEL, node_label=np.full((60, 1), "a")),
        r"node-label\.npz: node_label is <U1, not class numbers",
    ),
    "label beyond range": (archive(LABEL, node_label=put((4, 0), 99)), "node 4 has 99.0"),
    "several tasks": (archive(LABEL, node_label=np.zeros((60, 2))), r"node_label has shape \[60, 2\]"),
}
DGL = {
    "file gone": (gone("graph.bin"), r"graph\.bin does not exist"),
    "file cut": (cut("graph.bin", 0.5), r"graph\.bin.*damaged"),
    "text": (bytes_of("graph.bin", b"src,dst\n" * 9), r"graph\.bin.*damaged"),
    "no such graph": (key(index=1), "index = 1, but it holds 1 graphs"),
    "no such feature": (key(feature="x"), "no node type has ndata 'x'; they have feat, label"),
    "no such weight": (key(weight="w"), "have no edata 'w'"),
    "nan in features": (ndata("feat", put((5, 2), NAN)), "'feat' row 5 column 2 is nan"),
    "label beyond range": (ndata("label", put(4, 99)), r"'label': 1 labels are no class numbers .*node 4 has 99"),
    "masks overlap": (ndata("test_mask", [True] * 60), r"graph\.bin: the split .*\n.*train and test overlap"),
    "a mask gone": (ndata("val_mask", None), "lacks val_mask"),
    "a mask of floats": (ndata("val_mask", [0.5] * 60), r"'val_mask' is float32, and not true or false"),
}
CASES = {
    f"{form}: {name}": (form, *case)
    for form, cases in (
        ("Parquet", PARQUET), ("CSV", CSV), ("OGB text", OGB_TEXT), ("OGB binary", OGB_BINARY), ("DGL", DGL),
    )
    for name, case in cases.items()
}  # fmt: skip
