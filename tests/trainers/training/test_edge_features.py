"""Trainings on rows of edges: the same from every source, drawn or stored, and evaluated exactly; bad rows are told with counts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from graphmill.assets.features.read import open_features
from graphmill.assets.graph.read import open_graph
from graphmill.jobs.command import graphmill
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.notebook import open_trained
from graphmill.trainers.recipe.inputs import find_table_inputs
from tests.laws.asked import ASKED, PACKED_ROWS, Ask
from tests.laws.made import Made
from tests.trainers.runs import content

NODES, EDGES, WIDTH = 120, 700, 3
SOURCES = ("npz", "npz with a file", "pyg", "dgl", "edges", "tables")


class Drawn:
    """A random graph whose classes follow from the rows of a node's edges."""

    def __init__(self) -> None:
        generator = np.random.default_rng(4)
        pairs = generator.permutation(NODES * NODES)[:EDGES]
        self.src, self.dst = pairs // NODES, pairs % NODES
        self.rows = generator.standard_normal((EDGES, WIDTH)).astype(np.float32)
        self.x = generator.standard_normal((NODES, 4)).astype(np.float32)
        total = np.zeros(NODES)
        for ends in (self.src, self.dst):
            np.add.at(total, ends, self.rows[:, 0])
        self.y = (total > 0).astype(np.int64)
        part = generator.permutation(NODES)
        self.parts = np.sort(part[:70]), np.sort(part[70:95]), np.sort(part[95:])
        self.times, self.node_times = generator.random(EDGES) * 100, 50 + generator.random(NODES) * 100

    def masks(self) -> dict[str, np.ndarray]:
        return {
            name: np.isin(np.arange(NODES), ids)
            for name, ids in zip(("train_mask", "val_mask", "test_mask"), self.parts, strict=True)
        }

    def write(self, folder: Path, source: str, timed: bool = False) -> str:
        """Writes the graph as a source has it, with times if asked for; returns the tables [graph] and [features.edges]."""
        time, node_time = ({"time": self.times}, {"node_time": self.node_times}) if timed else ({}, {})
        named = 'time = "time"\nnode_time = "node_time"\n' if timed else ""
        np.save(folder / "rows.npy", self.rows)
        beside = '\n[features.edges]\nfile = "rows.npy"\n'
        if source.startswith("npz"):
            train, val, test = self.parts
            more = {} if "file" in source else {"edge_attr": self.rows}
            arrays = {"edge_index": np.stack([self.src, self.dst]), "x": self.x, "y": self.y, **more}
            arrays |= {f"edge_{name}": each for name, each in time.items()} | node_time
            np.savez(folder / "g.npz", train=train, val=val, test=test, **arrays)
            return '[graph]\nsource = "npz"\npath = "g.npz"\n' + ("\n[features.edges]\n" if more else beside)
        if source == "pyg":
            data = {
                name: torch.from_numpy(each)
                for name, each in {"x": self.x, "y": self.y, **self.masks(), **time, **node_time}.items()
            }
            data |= {"edge_index": torch.from_numpy(np.stack([self.src, self.dst]))}
            torch.save(data | {"edge_attr": torch.from_numpy(self.rows)}, folder / "g.pt")
            return '[graph]\nsource = "pyg"\npath = "g.pt"\n' + f"{named}\n[features.edges]\n"
        if source == "dgl":
            dgl = pytest.importorskip("dgl")
            graph = dgl.graph((torch.from_numpy(self.src), torch.from_numpy(self.dst)), num_nodes=NODES)
            for name, each in {"feat": self.rows, **time}.items():
                graph.edata[name] = torch.from_numpy(each)
            for name, each in {"feat": self.x, "label": self.y, **self.masks(), **node_time}.items():
                graph.ndata[name] = torch.from_numpy(each)
            dgl.save_graphs(str(folder / "g.dgl"), [graph])
            return '[graph]\nsource = "dgl"\npath = "g.dgl"\n' + f"{named}\n[features.edges]\n"
        return self._write_tables(folder, source, time, node_time) + beside

    def _write_tables(self, folder: Path, source: str, time: dict[str, Any], node_time: dict[str, Any]) -> str:
        import polars as pl

        parts = np.full(NODES, "train", dtype="U5")
        parts[self.parts[1]], parts[self.parts[2]] = "valid", "test"
        columns = {f"x{i}": self.x[:, i] for i in range(4)}
        pl.DataFrame({"id": np.arange(NODES), "label": self.y, "part": parts, **columns, **node_time}).write_parquet(
            folder / "nodes.parquet"
        )
        pl.DataFrame({"source": self.src, "target": self.dst, **time}).write_parquet(folder / "edges.parquet")
        keys = 'id_column = "id"\nfeatures = ["x0", "x1", "x2", "x3"]\nlabel_column = "label"\nsplit_column = "part"\n'
        ends = 'source_column = "source"\ntarget_column = "target"\n' + ('time_column = "time"\n' if time else "")
        of_node = 'time_column = "node_time"\n' if node_time else ""
        if source == "edges":
            keys += f"node_{of_node}" if of_node else ""
            return f'[graph]\nsource = "edges"\nedges = "edges.parquet"\nnodes = "nodes.parquet"\n{keys}{ends}'
        nodes = f'[graph.nodes.n]\npath = "nodes.parquet"\n{keys}{of_node}'
        edges = f'[graph.edges.e]\npath = "edges.parquet"\nsource_type = "n"\ntarget_type = "n"\n{ends}'
        return f'[graph]\nsource = "tables"\n\n{nodes}\n{edges}'


DRAWN = Drawn()
TRAIN = """
[sampling]
fanouts = [4, 3]
batch_size = 16
reuse = 2

[[train]]
name = "x"
hidden = 8
epochs = 3
lr = 0.02
threads = 1
edge_features = true
"""


def text(folder: Path, source: str, more: str = "", **keys: Any) -> str:
    lines = "".join(f"{name} = {value}\n" for name, value in keys.items())
    return f"seed = 5\n{DRAWN.write(folder, source)}{TRAIN}{lines}{more}"


def text_of_times(folder: Path, source: str) -> str:
    sampled = TRAIN.replace("reuse = 2", 'reuse = 2\nbefore = "seed"') + 'eval = "sampled"\n'
    return f"seed = 5\n{DRAWN.write(folder, source, timed=True)}{sampled}"


def trained(made: Made, written: str) -> Any:
    """The model of a file, and its artifacts."""
    pipeline = made.parse(written)
    made.build(pipeline)
    (table,) = pipeline.train
    return made.train(pipeline), find_table_inputs(pipeline, table, made.store, {})


def weights(model: Any) -> dict[str, torch.Tensor]:
    from safetensors.torch import load

    return load(model.file("weights.safetensors").read_bytes())


def weights_digest(model: Any) -> str:
    return content(model)["weights.safetensors"]


@pytest.mark.parametrize("source", SOURCES[1:])
def test_every_source_gives_the_same_rows_as_of_a_time(source: str, tmp_path: Path) -> None:
    """Edges that are sorted with their ids keep their times."""
    models = []
    for each in (source, "npz"):
        folder = tmp_path / each.replace(" ", "-")
        folder.mkdir()
        model, found = trained(Made(folder), text_of_times(folder, each))
        topology = open_graph(found.inputs["graph"]).topology
        assert topology.edge_times is not None and topology.edge_ids is not None
        np.testing.assert_array_equal(topology.edge_times, DRAWN.times[topology.edge_ids])
        models.append({name: each.numpy().tobytes() for name, each in weights(model).items()})
    assert models[0] == models[1]


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_rows(source: str, tmp_path: Path) -> None:
    """Row i is that of edge i, both directions have it, and the weights are those of the archive."""
    made = Made(tmp_path)
    model, found = trained(made, text(tmp_path, source))
    topology, table = open_graph(found.inputs["graph"]).topology, open_features(found.inputs["features.edges"])
    np.testing.assert_array_equal(table.open(), DRAWN.rows)
    assert topology.edge_ids is not None
    dst = np.repeat(np.arange(NODES), np.diff(topology.indptr))
    ends = {(int(u), int(v)) for u, v in zip(topology.indices, dst, strict=True)}
    assert ends == {(u, v) for u, v in zip(DRAWN.src.tolist(), DRAWN.dst.tolist(), strict=True) if u != v} | {
        (v, u) for u, v in zip(DRAWN.src.tolist(), DRAWN.dst.tolist(), strict=True) if u != v
    }
    first: dict[frozenset[int], int] = {}
    for number, pair in enumerate(zip(DRAWN.src.tolist(), DRAWN.dst.tolist(), strict=True)):
        first.setdefault(frozenset(pair), number)
    expected = [first[frozenset((int(u), int(v)))] for u, v in zip(topology.indices, dst, strict=True)]
    np.testing.assert_array_equal(topology.edge_ids, expected)
    plain = tmp_path / "plain"
    plain.mkdir()
    other, _ = trained(Made(plain), text(plain, "npz"))
    assert {name: each.numpy().tobytes() for name, each in weights(model).items()} == {
        name: each.numpy().tobytes() for name, each in weights(other).items()
    }


@pytest.mark.parametrize("model", ["sage", "gin", "gat", "gcn"])
def test_stored_batches_and_threads_change_no_bit(model: str, tmp_path: Path) -> None:
    made = Made(tmp_path)
    keys = {"model": f'"{model}"'}
    online, _ = trained(made, text(tmp_path, "npz", **keys))
    stored, _ = trained(made, text(tmp_path, "npz", "\n[samples]\n", samples='"stored"', samplers=3, **keys))
    assert content(online) == content(stored)


@pytest.mark.parametrize("model", ["sage", "gin", "gat", "rgcn", "rgat", "own_edges:halves"])
def test_exact_techniques_have_the_weights_of_minibatch(model: str, tmp_path: Path) -> None:
    """Drawn online or read from packed chunks, on samplers and trainers or on one thread: the same bits."""
    made, ask = Made(tmp_path), ASKED["edge_features"]
    (tmp_path / "own_edges.py").write_text(OWN)
    expected = weights(made.straight("minibatch", ask, model=model))
    packed = ask | PACKED_ROWS
    for trainer, asked in (("disk", ask), ("factored", ask), ("factored", packed)):
        found = weights(made.straight(trainer, asked, model=model))
        assert all(torch.equal(each, expected[name]) for name, each in found.items()) and len(found) == len(expected)


@pytest.mark.parametrize("model", ["sage", "gat", "rgcn", "own_edges:halves"])
def test_ranks_have_the_weights_of_one_process(model: str, tmp_path: Path) -> None:
    """One part is "minibatch" to the bit, and two ranks with a part each are one rank with both."""
    made, ask = Made(tmp_path), ASKED["edge_features"]
    (tmp_path / "own_edges.py").write_text(OWN)
    single, two = Ask(tables={"partitions": {"parts": 1}}), Ask(own={"ranks": 2})

    def digest(trainer: str, asked: Ask) -> str:
        return weights_digest(made.straight(trainer, asked, model=model))

    assert digest("distributed", ask | single) == digest("minibatch", ask)
    memory = PACKED_ROWS.tables["memory"] | {"edge_disk": "90x", "edge_host": "30%"}
    packed = ask | PACKED_ROWS
    for asked in (ask, packed, packed | Ask(tables={"memory": memory})):
        assert digest("distributed", asked | two) == digest("distributed", ask)


@pytest.mark.parametrize("model", ["sage", "gat", "rgcn"])
def test_a_history_spares_rows_of_edges(model: str, tmp_path: Path) -> None:
    """Every technique with a history prunes alike, and reads rows of the edges alone that are left."""
    made, ask = Made(tmp_path), ASKED["edge_features"]
    single = Ask(tables={"partitions": {"parts": 1}})
    expected = made.straight("fresh", ask, model=model)
    for trainer, asked in (("fresh-factored", ask), ("fresh-distributed", ask | single)):
        assert weights_digest(made.straight(trainer, asked, model=model)) == weights_digest(expected)
    one, two = (made.straight("fresh-distributed", ask | Ask(own={"ranks": ranks}), model=model) for ranks in (1, 2))
    assert weights_digest(two) == weights_digest(one)
    kept, drawn = (edge_rows_read(each) for each in (expected, made.straight("minibatch", ask, model=model)))
    assert 0 < kept < drawn


def edge_rows_read(model: Any) -> int:
    counts = json.loads((model.path / "ledger.json").read_text())["counts"]
    return sum(each["n"] for each in counts if each["name"] == "edge_feature_rows")


def test_ranks_predict_what_one_process_predicts(tmp_path: Path) -> None:
    import polars as pl

    more = '\n[partitions]\nparts = 2\nmethod = "random"\n'
    path, home = tmp_path / "mine.toml", ["--home", str(tmp_path / "home")]
    path.write_text('name = "mine"\n' + text(tmp_path, "npz", more, trainer='"distributed"'))
    found = []
    for arguments in (["run", str(path)], *(["predict", str(path), "x", "--ranks", ranks, "--out"] for ranks in "12")):
        out = [str(tmp_path / f"{len(found)}.parquet")] if arguments[0] == "predict" else []
        told = CliRunner().invoke(graphmill, [*home, *arguments, *out])
        assert told.exit_code == 0, told.output
        found += [pl.read_parquet(each) for each in out]
    one, two = found
    assert one["class"].equals(two["class"])
    np.testing.assert_allclose(one["probability"], two["probability"], rtol=1e-5)


@pytest.mark.parametrize("model", ["sage", "gcn", "gin", "gat", "rgcn", "rgat", "own_edges:halves"])
def test_passes_over_chunks_have_one_result(model: str, tmp_path: Path) -> None:
    """Chunks on any number of ranks, with kept sums or none: the same bits; uncut, and one batch of everything: the same in float64."""
    made, ask = Made(tmp_path), ASKED["edge_features"] | Ask(keys={"dtype": "float64", "eval": "exact"})
    (tmp_path / "own_edges.py").write_text(OWN)
    expected = made.straight("fullgraph", ask, model=model)
    for own in ({"ranks": 2}, {"hybrid": False}, {"keep_first": False}):
        if model.startswith("own") and "keep_first" in own:
            continue
        found = made.straight("fullgraph", ask | Ask(own=own), model=model)
        assert weights_digest(found) == weights_digest(expected), own
    whole = Ask(keys={"accumulate": 1}, sampling={"fanouts": [-1, -1], "batch_size": 100_000, "reuse": 1})
    for trainer, asked in (("fullgraph", Ask(own={"mode": "device"})), ("minibatch", whole)):
        found = weights(made.straight(trainer, ask | asked, model=model))
        for name, each in weights(expected).items():
            torch.testing.assert_close(found[name], each, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", ["sage", "gin", "gat"])
def test_exact_evaluation_is_the_whole_neighbourhood(model: str, tmp_path: Path) -> None:
    """Layer by layer, in ranges of any size, and by fan-outs of -1: the same logits."""
    made = Made(tmp_path)
    written = text(tmp_path, "npz", model=f'"{model}"', dtype='"float64"').replace("[4, 3]", "[-1, -1]")
    pipeline = made.parse(written)
    made.build(pipeline)
    made.train(pipeline)
    opened = open_trained(made.store, pipeline, "x")
    whole, narrow = opened.logits(), opened.logits(workspace="64KiB")
    torch.testing.assert_close(narrow, whole, rtol=1e-10, atol=1e-10)
    for way in ("exact", "sampled"):
        predict_table(made.store, pipeline, "x", tmp_path / f"{way}.parquet", evaluation=way)
    import polars as pl

    exact, sampled = (pl.read_parquet(tmp_path / f"{way}.parquet")["probability"] for way in ("exact", "sampled"))
    np.testing.assert_allclose(exact, sampled, rtol=1e-5)
    expected = torch.softmax(whole, 1).max(1).values
    np.testing.assert_allclose(exact, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (DRAWN.rows[:-7], "693 rows for 700 edges"),
        (np.concatenate([DRAWN.rows, DRAWN.rows]), "1,400 rows for 700 edges"),
        (np.where(np.arange(EDGES)[:, None] == 9, np.nan, DRAWN.rows), "row 9 column 0 is nan"),
        (DRAWN.rows.astype("U8"), "not numbers"),
        (DRAWN.rows[:, :0], "0 columns"),
        (DRAWN.rows[:, None], "not numbers"),
    ],
)
@pytest.mark.parametrize("source", ["npz", "npz with a file", "edges"])
def test_bad_rows_are_told_once(source: str, rows: np.ndarray, problem: str, tmp_path: Path) -> None:
    made, drawn = Made(tmp_path), Drawn()
    drawn.rows = rows
    written = f"seed = 5\n{drawn.write(tmp_path, source)}{TRAIN}"
    with pytest.raises(InputError, match=problem) as told:
        made.build(made.parse(written))
    assert str(told.value).count(problem) == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace("[features.edges]", "[features]"), r"no table \[features.edges\]"),
        (lambda text: text.replace("edge_features = true", ""), "read by no training"),
        (
            lambda text: text + '[features.edges.cites]\ndtype = "float16"\n',
            "rows of a relation have the keys file and tensor",
        ),
        (lambda text: text + "[features.edges.cites]\n", "rows of a relation have the keys file and tensor"),
        (
            lambda text: text.replace("[features.edges]", '[features.edges]\ncolumns = "a"'),
            "columns is for rows of nodes",
        ),
        (lambda text: text + 'model = "pinsage"\n', "edge_features = true is for gcn"),
        (lambda text: text + 'device = "cuda"\n', "sends no rows of edges yet"),
        (
            lambda text: (
                text + 'trainer = "distributed"\n\n[train.distributed]\nscheme = "vanilla"\n\n[partitions]\nparts = 2\n'
            ),
            "draws edges without their numbers",
        ),
        (lambda text: text.replace("reuse", 'method = "random_walk"\nreuse'), "draws nodes, and no edges"),
    ],
)
def test_what_does_not_go_with_rows_of_edges_is_refused_by_name(change: Any, problem: str, tmp_path: Path) -> None:
    made = Made(tmp_path)
    written = change(text(tmp_path, "npz"))
    with pytest.raises(InputError, match=problem):
        made.parse(written)


OWN = '''
import torch
from torch import nn


class Layer(nn.Module):
    """Sums messages: the sender's row with the edge's row beside it."""

    def __init__(self, in_width, edge_width, out_width):
        super().__init__()
        self.own, self.linear = nn.Linear(in_width, out_width), nn.Linear(in_width + edge_width, out_width)

    def of_edges(self, h, own, edges, rows):
        messages = torch.cat([h[edges[0]], rows], 1)
        return self.linear(messages.new_zeros((len(own), messages.shape[1])).index_add(0, edges[1], messages)), own

    def end(self, agg, own):
        return torch.tanh(self.own(own) + agg)


class Halves(Layer):
    def aggregate(self, block, h_src, rng):
        dst = torch.repeat_interleave(torch.from_numpy(block.end - block.start))
        edges = torch.stack([torch.from_numpy(block.indices).long(), dst])
        return self.of_edges(h_src, h_src[: block.num_dst], edges, block.edge_rows[block.edge_place])[0]

    def update(self, agg, h_dst, rng):
        return self.end(agg, h_dst)


class Whole(Layer):
    def forward(self, h, edge_index, edge_attr):
        return self.end(*self.of_edges(*h, edge_index, edge_attr))


def made(kind, in_width, num_classes, config, edge_width):
    return [kind(in_width, edge_width, config.hidden), kind(config.hidden, edge_width, num_classes)]


def halves(in_width, num_classes, config, edge_width):
    return made(Halves, in_width, num_classes, config, edge_width)


def whole(in_width, num_classes, config, edge_width):
    return made(Whole, in_width, num_classes, config, edge_width)


class Blocks(nn.Module):
    def __init__(self, in_width, num_classes, config, edge_width):
        super().__init__()
        self.layers = nn.ModuleList(whole(in_width, num_classes, config, edge_width))


class Pyg(Blocks):
    def forward(self, blocks, x):
        for layer, block in zip(self.layers, blocks):
            x = layer((x, x[: block.size[1]]), block.edge_index, block.edge_attr)
        return x


class Dgl(Blocks):
    def forward(self, blocks, x):
        for layer, block in zip(self.layers, blocks):
            x = layer((x, x[: block.num_dst_nodes()]), torch.stack(block.edges()), block.edata["feat"].to(x.dtype))
        return x


class Graph(Blocks):
    def forward(self, x, edge_index, edge_attr):
        for layer in self.layers:
            x = layer((x, x), edge_index, edge_attr)
        return x
'''


def own_text(folder: Path, model: str, **keys: Any) -> str:
    (folder / "own_edges.py").write_text(OWN)
    blocks = {"blocks": '"pyg"'} if model == "Pyg" else {}
    return text(folder, "npz", model=f'"own_edges:{model}"', dropout=0.0, **blocks, **keys)


def test_every_form_of_own_model_reads_the_rows_of_its_edges(tmp_path: Path) -> None:
    """Layers of two halves, whole ones, modules over blocks of PyG and DGL and over a graph: the same weights and logits."""
    pytest.importorskip("dgl")
    found = []
    for model in ("halves", "whole", "Pyg", "Dgl", "Graph"):
        folder = tmp_path / model
        folder.mkdir()
        made = Made(folder)
        pipeline = made.parse(own_text(folder, model, dtype='"float64"').replace("[4, 3]", "[-1, -1]"))
        made.build(pipeline)
        values = weights(made.train(pipeline))
        logits = open_trained(made.store, pipeline, "x").logits()
        found.append([values[name] for name in sorted(values)] + [logits])
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_a_source_without_ids_is_refused_by_name(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", DRAWN.rows)
    graph = '[graph]\nsource = "sbm"\nnodes = 60\nedges = 200\nfeatures = 4\nclasses = 2\n'
    with pytest.raises(InputError, match="gives its edges no ids"):
        Made(tmp_path).parse(f'seed = 5\n{graph}\n[features.edges]\nfile = "rows.npy"\n{TRAIN}')
