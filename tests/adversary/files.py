"""Files of every form in every role, drawn from a number: sound ones in other spellings, and damaged ones.

A sound spelling (another order of columns, a byte-order mark, Fortran order, ...) has to give the graph that was drawn; anything else may
be refused, by one message that no library wrote.
"""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors.numpy import save as tensors

NODES, EDGES, WIDTH = 24, 60, 3

LIBRARY = re.compile(
    r"struct_pack|(Conversion|Binder|Catalog|Parser|Invalid Input|IO|Out of Range|Internal|Invalid|Value|Type|Compute|Schema) ?Error"
    r"|magic (string|bytes)|Traceback|codec can't|allow_pickle|mmap length|TRY_CAST|list_position|numpy\.(core|_core|lib)|<class "
    r"|object at 0x|destination type|failed to cast|Could not convert|columns=|json\.decoder|Expecting value|No such file or directory: '",
)
"""Words of libraries that no message has."""


@dataclass
class Drawn:
    """A drawn graph, its files and what became of them.

    Attributes:
        text: the tables of a pipeline file.
        sound: whether the files mean the graph.
        damage: what was done, for the reader of a failure.
    """

    text: str
    sound: bool
    damage: str
    edges: np.ndarray
    x: np.ndarray
    y: np.ndarray
    files: list[Path] = field(default_factory=list)


def drawn_files(draw: random.Random, folder: Path) -> Drawn:
    """Draws a graph, writes it in a drawn form and does something to one of its files."""
    rng = np.random.default_rng(draw.randrange(2**32))
    edges, y = rng.integers(0, NODES, (EDGES, 2)), rng.integers(0, 3, NODES)
    x = (rng.integers(-8, 8, (NODES, WIDTH)) / 4).astype(np.float32)
    made = Drawn("", True, "nothing", edges, x, y)
    splits = np.array(["train", "valid", "test"])[np.arange(NODES) % 3]
    table = {"src": edges[:, 0], "dst": edges[:, 1]}
    nodes = {"id": np.arange(NODES), **{f"f{place}": x[:, place] for place in range(WIDTH)}, "y": y, "part": splits}
    forms = {"edges": draw.choice(("csv", "tsv", "txt", "parquet")), "nodes": draw.choice(("csv", "tsv", "parquet"))}
    role = draw.choice(("edges", "nodes", "features", "features"))
    frames = {"edges": pl.DataFrame(table), "nodes": pl.DataFrame(nodes)}
    if role != "features" and draw.random() < 0.5:
        frames[role], made.sound, made.damage = _changed(frames[role], draw, role)
    for name, frame in frames.items():
        path = folder / f"{name}.{forms[name]}"
        path.write_bytes(_table_bytes(frame, forms[name]))
        made.files.append(path)
        if name == role and made.damage == "nothing":
            content, sound, made.damage = _spoilt(path.read_bytes(), forms[name], draw)
            path.write_bytes(content)
            made.sound = made.sound and sound
    keys = [f'edges = "{made.files[0]}"', f'nodes = "{made.files[1]}"', 'label_column = "y"', 'split_column = "part"']
    rest = ""
    if role == "features":
        ending = draw.choice(("npy", "safetensors"))
        content, made.sound, made.damage = _rows(x, ending, draw)
        path = folder / f"x.{ending}"
        path.write_bytes(content)
        made.files.append(path)
        rest = f'\n[features]\nfile = "{path}"\n'
    else:
        keys.append('features = ["f0", "f1", "f2"]')
    rules = 'undirected = false\nduplicates = "keep"\nself_loops = "keep"'
    made.text = f'[graph]\nsource = "edges"\n{rules}\n' + "\n".join(keys) + "\n" + rest
    return made


def _table_bytes(frame: pl.DataFrame, form: str) -> bytes:
    out = io.BytesIO()
    if form == "parquet":
        frame.write_parquet(out)
    else:
        frame.write_csv(out, separator={"csv": ",", "tsv": "\t", "txt": " "}[form])
    return out.getvalue()


TYPES = (
    pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64, pl.Boolean, pl.String,
    pl.Binary, pl.Date, pl.Datetime, pl.Time, pl.Duration, pl.Categorical, pl.Decimal(20, 2), pl.List(pl.Int64), pl.Array(pl.Int64, 2),
    pl.Struct({"a": pl.Int64}), pl.Null, pl.Int128,
)  # fmt: skip
CELLS = (
    "", " ", "-1", "1e3", "01", "+1", "1.5", "1.0", "nan", "inf", "18446744073709551615", "9223372036854775808", "99999999999999999999",
    "NULL", "1_000", "1,000", "0x1", "é", "\u0661", "true", "2020-01-01", "1 2", "\x1b[2J", "9" * 300,
)  # fmt: skip
NAMES = (
    "",
    " ",
    "F0",
    "ID",
    "Src",
    "a.b",
    "a'b",
    'a"b',
    "x\ny",
    "💡",
    "SELECT",
    "f0 ",
    "*",
    "%s",
    "[0]",
    "a;b",
    "\u202e",
    "n" * 300,
)


def _changed(frame: pl.DataFrame, draw: random.Random, role: str) -> tuple[pl.DataFrame, bool, str]:
    """Returns (a frame that has something else, whether it means the same, what was done)."""
    kind = draw.choice(("order", "type", "cell", "rename", "added", "rows"))
    column = draw.choice(frame.columns)
    if kind == "order":
        return frame.select(draw.sample(frame.columns, len(frame.columns))), True, "the order of columns"
    if kind == "added":
        name = draw.choice(NAMES)
        found = frame.with_columns(pl.lit(7).alias(name)) if name not in frame.columns else frame
        return found, False, f"a column {name!r}"
    if kind == "rename":
        return frame.rename({column: draw.choice(NAMES)}), False, f"another name for {column}"
    if kind == "rows":
        return frame[: draw.choice((0, 1))], False, "hardly any rows"
    if kind == "type":
        dtype = draw.choice(TYPES)
        return _cast(frame, column, dtype), False, f"{column} as {dtype}"
    values = [str(value) for value in frame[column].to_list()]
    values[draw.randrange(len(values))] = draw.choice(CELLS)
    return frame.with_columns(pl.Series(column, values)), False, f"a cell of {column}"


def _cast(frame: pl.DataFrame, column: str, dtype: Any) -> pl.DataFrame:
    values = frame[column]
    try:
        if isinstance(dtype, pl.Struct):
            return frame.with_columns(pl.struct(pl.col(column).alias("a")).alias(column))
        if isinstance(dtype, pl.List | pl.Array):
            return frame.with_columns(pl.Series(column, [[1, 2]] * len(values), dtype=dtype))
        if dtype == pl.Null:
            return frame.with_columns(pl.lit(None).alias(column))
        return frame.with_columns(values.cast(pl.Int64, strict=False).cast(dtype, strict=False).alias(column))
    except pl.exceptions.PolarsError:
        return frame.with_columns(values.cast(pl.String).alias(column))


def _spoilt(content: bytes, form: str, draw: random.Random) -> tuple[bytes, bool, str]:
    """Returns (other content of a file of a table, whether it means the same, what was done)."""
    text = form != "parquet"
    cut = content[: draw.randrange(1, len(content))]
    kinds: dict[str, Callable[[], tuple[bytes, bool]]] = {
        "empty": lambda: (b"", False),
        "cut": lambda: (cut, False),
        "zeros": lambda: (bytes(200), False),
        "noise": lambda: (draw.randbytes(300), False),
        "Parquet": lambda: (_table_bytes(pl.DataFrame({"src": [0, 1], "dst": [1, 2]}), "parquet"), False),
        "Arrow": lambda: (_arrow(), False),
        "JSON": lambda: (json.dumps([{"src": 0, "dst": 1}]).encode(), False),
        "an array": lambda: (_npy(np.zeros((2, 5), np.int64)), False),
        "a pickle": lambda: (b"\x80\x04\x95\x0b\0\0\0\0\0\0\0]\x94(K\x01e.", False),
    }
    if text:
        kinds |= {
            "a mark": lambda: (b"\xef\xbb\xbf" + content, True),
            "ends of lines": lambda: (content.replace(b"\n", b"\r\n"), True),
            "old ends of lines": lambda: (content.replace(b"\n", b"\r"), True),
            "blank lines": lambda: (b"\n\n" + content + b"\n", True),
            "UTF-16": lambda: (content.decode().encode("utf-16"), False),
            "UTF-32": lambda: (content.decode().encode("utf-32"), False),
            "Latin-1": lambda: (content + b"\xe9", False),
            "zero bytes": lambda: (content[:50] + b"\0" + content[50:], False),
            "one end left out": lambda: (content.rstrip(b"\n"), True),
            "a quote": lambda: (content[:60] + b'"' + content[60:], False),
        }
    what = draw.choice(sorted(kinds))
    spoilt, sound = kinds[what]()
    return spoilt, sound, what


def _rows(x: np.ndarray, ending: str, draw: random.Random) -> tuple[bytes, bool, str]:
    """Returns (content of a file of features, whether it has the rows, what was done)."""
    whole = tensors({"x": x}) if ending == "safetensors" else _npy(x)
    records = np.zeros(len(x), [("a", "f4"), ("b", "f4")])
    kinds: dict[str, Callable[[], tuple[bytes, bool]]] = {
        "nothing": lambda: (whole, True),
        "raw": lambda: (x.tobytes(), False),
        "objects": lambda: (_npy(np.array([[*map(float, row)] for row in x], object), pickled=True), False),
        "Fortran order": lambda: (_npy(np.asfortranarray(x)), ending == "npy"),
        "big-endian": lambda: (_npy(x.astype(">f4")), ending == "npy"),
        "float64": lambda: (_npy(x.astype(np.float64)), ending == "npy"),
        "complex": lambda: (_npy(x.astype(np.complex64)), False),
        "text": lambda: (_npy(x.astype(str)), False),
        "times": lambda: (_npy(x.astype("datetime64[s]")), False),
        "records": lambda: (_npy(records), False),
        "no axis": lambda: (_npy(np.float32(3)), False),
        "one axis": lambda: (_npy(x[:, 0]), False),
        "three axes": lambda: (_npy(x[:, :, None]), False),
        "too few": lambda: (_npy(x[:-1]), False),
        "turned": lambda: (_npy(np.ascontiguousarray(x.T)), False),
        "no rows": lambda: (_npy(x[:0]), False),
        "no columns": lambda: (_npy(x[:, :0]), False),
        "cut": lambda: (whole[: draw.randrange(0, len(whole) - 1)], False),
        "CSV": lambda: (b"1,2,3\n" * NODES, False),
        "an archive": lambda: (_npz(x), False),
        "Parquet": lambda: (_table_bytes(pl.DataFrame({"a": x[:, 0]}), "parquet"), False),
        "two tensors": lambda: (tensors({"x": x, "z": x}), False),
        "no tensors": lambda: (tensors({}), False),
        "an odd header": lambda: (_header(draw), False),
        "float8": lambda: (tensors({"x": x}).replace(b"F32", b"F8 "), False),
        "noise": lambda: (draw.randbytes(200), False),
    }
    what = draw.choice(sorted(kinds))
    content, sound = kinds[what]()
    return content, sound, f"{what} in .{ending}"


def _header(draw: random.Random) -> bytes:
    entry: Any = {"dtype": "F32", "shape": [NODES, WIDTH], "data_offsets": [0, 4 * NODES * WIDTH]}
    entry[draw.choice(sorted(entry))] = draw.choice((None, -1, "x", [], [-1, 4], [2**70, 2], {}, [1.5, 2]))
    text = json.dumps(draw.choice(({"x": entry}, {"x": 3}, [entry], "x", {}))).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4 * NODES * WIDTH)


def _npy(array: Any, *, pickled: bool = False) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=pickled)
    return out.getvalue()


def _npz(x: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez(out, x=x)
    return out.getvalue()


def _arrow() -> bytes:
    out = io.BytesIO()
    pl.DataFrame({"src": [0, 1], "dst": [1, 2]}).write_ipc(out)
    return out.getvalue()
