"""Malformed data, changed at drawn places, are refused by one message or make a graph that passes its checks."""

from __future__ import annotations

import io
import os
import random
import re
import zipfile
from pathlib import Path

import numpy as np

from graphmill.assets.building.materialize import materialize_together
from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.pipeline.steps import preprocessing_steps
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import execution_of
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.adversary.attack import REFUSED, SOUND, Attack, WrongError
from tests.adversary.files import LIBRARY, drawn_files
from tests.assets.sources.readers import shapes

NODES, EDGES = 60, 200
CELLS = (
    "", " ", "-1", "1e3", "01", "+1", "1.5", "nan", "inf", "99999999999999999999", "100000000000000", "NULL", '"', '"1', "1,2", "\x00", "é",
    "2020-01-01", "true", "=1+1", "\u202e", "0x10", "1_000", "9" * 400,
)  # fmt: skip
SHAPES = ("(2, -200)", "(200, 2)", "(2, 4000000000000)", "(400,)", "()", "(2, 200, 1)", "(-2, -200)", "(2, 0)")
DTYPES = ("<i8", "<f8", "|O", "<U4", "<i4", ">i8", "|b1", "<M8[s]", "<c16", "|V8", "<u8")


def malformed(folder: Path) -> Attack:
    """Returns the attack."""

    def attack(seed: int, folder: Path) -> str:
        draw = random.Random(seed)
        made = draw.choice((_tables, _archive, _no_files, _files))(folder, draw)
        path = folder / "drawn.toml"
        text = f'name = "drawn"\n\n[graph]\n{made}\n\n[sampling]\nfanouts = [2]\nbatch_size = 16\n'
        try:
            pipeline = parse_pipeline(path, text.encode(), TrainTable)
            steps = preprocessing_steps(pipeline, folder / "home")
            asked = [(step.recipe, step.configs[0]) for step in steps]
            found = materialize_together(Store(folder / "home"), asked, execution_of(steps[0].recipe, 1))  # pyright: ignore
        except InputError as error:
            said = str(error)
            unprinted = any(ord(letter) < 32 and letter != "\n" for letter in said)
            if len(said) > 20_000 or unprinted or LIBRARY.search(re.sub(r'python -c ".*?"', "", said)):
                raise WrongError(f"no message for a terminal: {said[:300]!r}") from error
            return REFUSED
        problems = [problem for artifact in found for problem in artifact.verify()]
        if problems:
            raise WrongError(f"built, and damaged: {problems}")
        return SOUND

    return attack


def _tables(folder: Path, draw: random.Random) -> str:
    edges = [["src", "dst"], *([draw.randrange(NODES), draw.randrange(NODES)] for _ in range(EDGES))]
    nodes = [["id", "label", "x"], *([i, draw.randrange(3), draw.random()] for i in range(NODES))]
    for table in (edges, nodes):
        for _ in range(draw.choice((0, 1, 1, 3))):
            row = draw.choice(table)
            row[draw.randrange(len(row))] = draw.choice(CELLS)
            if draw.random() < 0.2:
                del row[-1]
    for name, table in (("edges.csv", edges), ("nodes.csv", nodes)):
        text = "\n".join(",".join(map(str, row)) for row in table) + "\n"
        (folder / name).write_bytes(_scratched(text.encode(), draw))
    more = draw.choice(
        ("", "", 'id_type = "text"', 'id_type = "integer"', 'features = ["x"]', 'label_column = "label"')
    )
    return f'source = "edges"\nedges = "{folder}/edges.csv"\nnodes = "{folder}/nodes.csv"\n{more}'


def _archive(folder: Path, draw: random.Random) -> str:
    make = np.random.default_rng(draw.randrange(2**32))
    arrays = {
        "edge_index": make.integers(0, NODES, (2, EDGES)),
        "y": make.integers(0, 3, NODES),
        "x": make.random((NODES, 4), np.float32),
    }
    kind = draw.randrange(5)
    name = draw.choice(sorted(arrays))
    if kind == 0:
        place = tuple(draw.randrange(n) for n in arrays[name].shape)
        arrays[name][place] = draw.choice((-1, NODES, 2**40, 10**14)) if name != "x" else draw.choice((np.nan, np.inf))
    elif kind == 1:
        arrays[name] = arrays[name].astype(draw.choice(("f4", "c8", "U8", "M8[s]", "?")))
    elif kind == 2:
        del arrays[name]
    with zipfile.ZipFile(folder / "made.npz", "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as file:
        for each, values in arrays.items():
            data = io.BytesIO()
            np.save(data, values)
            content = data.getvalue()
            if kind == 3 and each == name:
                content = _header(draw) + content[128:]
            file.writestr(f"{each}.npy", content)
    path = folder / "made.npz"
    path.write_bytes(_scratched(path.read_bytes(), draw) if kind == 4 else path.read_bytes())
    return f'source = "npz"\npath = "{path}"'


def _header(draw: random.Random) -> bytes:
    text = f"{{'descr': '{draw.choice(DTYPES)}', 'fortran_order': {draw.choice((True, False))}, 'shape': {draw.choice(SHAPES)}, }}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.encode().ljust(117)[:117] + b"\n"


def _files(folder: Path, draw: random.Random) -> str:
    """Returns tables and features in files of any form, or an adjacency list, a matrix or another shape in place of edges."""
    if draw.random() < 0.3:
        shape = draw.choice(shapes.SHAPES)(draw)
        (folder / shape.name).write_text(shape.text)
        return f'source = "edges"\nedges = "{folder}/{shape.name}"'
    return drawn_files(draw, folder).text.removeprefix("[graph]\n")


def _no_files(folder: Path, draw: random.Random) -> str:
    """Returns a source whose paths lead to what is no file, and sizes that no machine has."""
    os.mkfifo(folder / "pipe.npz")
    os.symlink("/dev/zero", folder / "zero.npz")
    os.symlink("loop.npz", folder / "loop.npz")
    (folder / "empty.npz").write_bytes(b"")
    (folder / "pipe.csv").symlink_to(folder / "pipe.npz")
    archive = draw.choice(("pipe.npz", "zero.npz", "loop.npz", "empty.npz", "none.npz", "."))
    return draw.choice(
        (
            f'source = "npz"\npath = "{folder}/{archive}"',
            f'source = "edges"\nedges = "{folder}/pipe.csv"',
            'source = "edges"\nedges = "/dev/zero"',
            f'source = "dgl"\npath = "{folder}/{archive}"',
            f'source = "ogb"\npath = "{folder}/{archive}"',
            'source = "sbm"\nnodes = 1000\nedges = 900_000_000_000',
            'source = "sbm"\nnodes = 4_000_000_000\nedges = 10',
            'source = "rmat"\nnodes = 4_294_967_296\nedges = 10',
        )
    )


def _scratched(data: bytes, draw: random.Random) -> bytes:
    """Returns bytes with some of them changed, left out or doubled; most often the bytes as they are."""
    for _ in range(draw.choice((0, 0, 0, 1, 2, 8))):
        place, length = draw.randrange(len(data) + 1), draw.randrange(1, 20)
        kind = draw.randrange(4)
        if kind == 0:
            data = data[:place] + draw.randbytes(length) + data[place + length :]
        elif kind == 1:
            data = data[:place] + data[place + length :]
        elif kind == 2:
            data = data[:place] + data[place : place + length] + data[place:]
        else:
            data = data[:place]
        data = data or b"x"
    return data
