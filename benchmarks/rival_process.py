"""Rivals in processes of their own, asked in turn with ours: DGL 1.1.3 and PyG by this interpreter, GraphBolt by the one that is named.

PyG samples by torch-sparse, which may be in another interpreter that PYG_PYTHON names (benchmarks/rivals_pyg.py).

Every rival runs twice: "kept", with freed memory kept in the process as our trainer keeps it (`trainers/devices/malloc.py`; the C library
takes the same settings from variables) and threads that spin as shortly as ours, and as a user starts it. What is compared first are logits
and gradients of the same parameters on the same blocks.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.limited_home import GRAPHBOLT
from graphmill.assets.building.child import NUM_SPINS, SPINS, TUNABLES
from graphmill.assets.storage.names.home import ROOT
from graphmill.kernels.blocks.pyg_blocks import to_subgraph
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block, Stream
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import Model, OwnModule
from graphmill.trainers.recipe.config import TrainConfig
from tests.graphs import GraphArtifacts

PYG = "PYG_PYTHON"
VARIABLES = {"graphbolt": GRAPHBOLT, "pyg": PYG}
"""Rival -> the variable that names its interpreter."""
CHILD = {"pyg": "benchmarks.pyg_child"}
"""Rival -> the module that answers, if it is not benchmarks/rival_child.py."""
KEPT = {
    "MALLOC_TRIM_THRESHOLD_": "2147483647",
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_MMAP_MAX_": "0",
    SPINS: NUM_SPINS,
}
LARGEST_ERROR = 1e-4
NORM = "finish.norm."
NAMES = {
    "sage": {"own.weight": "fc_self.weight", "own.bias": "fc_self.bias", "neighbours.weight": "fc_neigh.weight"},
    "gat": {"projection.weight": "fc.weight", "left": "attn_l", "right": "attn_r", "bias": "bias"},
}
"""Our name of a parameter -> the name that DGL's layer gives it."""


def contestants(system: str, quick: bool) -> list[tuple[str, str, bool]]:
    """Returns (name, interpreter, whether freed memory is kept) of each process of a system: "kept", and unless quick "default"."""
    python = interpreter(system)
    ways = (("kept", True), ("default", False))[: 1 if quick else None]
    return [(f"{system}, {way}", python, kept) for way, kept in ways] if python else []


def interpreter(system: str) -> str | None:
    """Returns the interpreter of "dgl", "graphbolt" or "pyg"; None, and a line that says so, if there is none."""
    if found := os.environ.get(VARIABLES.get(system, "")):
        return found
    if system == "graphbolt":
        print(f"graphbolt: left out, {GRAPHBOLT} names no interpreter (python -m benchmarks.rival_environment FOLDER)")
        return None
    package = {"dgl": "dgl", "pyg": "torch_sparse"}[system]
    try:
        import_module(package)
    except ImportError:
        print(f"{system}: left out, {package} is not installed")
        return None
    return sys.executable


class RivalProcess:
    """A rival that waits for questions; see benchmarks/rival_child.py.

    Args:
        python: its interpreter.
        spec: what it is told of the graph and the model.
        kept: whether freed memory stays in the process.
        module: the module that answers; None for the system's own.
    """

    def __init__(self, python: str, spec: Mapping[str, Any], kept: bool, module: str | None = None):
        self._folder = tempfile.TemporaryDirectory(prefix="graphmill-rival-")
        self.folder, self.spec = Path(self._folder.name), dict(spec)
        path = self.folder / "spec.json"
        path.write_text(json.dumps(self.spec))
        ours = {*KEPT, TUNABLES}
        environment = {name: value for name, value in os.environ.items() if name not in ours}
        environment |= {"PYTHONPATH": str(ROOT), "DGLBACKEND": "pytorch"} | (KEPT if kept else {})
        module = module or CHILD.get(self.spec["system"], "benchmarks.rival_child")
        command = [python, "-m", module, str(path)]
        self._child = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> RivalProcess:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._folder.cleanup()

    def ask(self, what: str, **more: Any) -> Any:
        """Returns an answer.

        Raises:
            ChildProcessError: the rival has ended.
        """
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            print(json.dumps({"ask": what} | more), file=self._child.stdin, flush=True)
            answer = self._child.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise ChildProcessError(f"{self.spec['system']} ended before it answered {what!r}; see above")
        return json.loads(answer)

    def compare(self, graph: GraphArtifacts, config: TrainConfig) -> float:
        """Runs both models with the same parameters on the same blocks.

        Returns:
            The largest difference of logits and gradients, norm-wise, relative to theirs.

        Raises:
            AssertionError: it is above 1e-4.
        """
        return self.agree(_our_values(graph, config, tuple(self.spec["fanouts"]), self.folder / "given.npz"))

    def agree(self, ours: Mapping[str, np.ndarray]) -> float:
        """Asks for the values that follow from the file `given.npz` of the folder, and returns and raises what `compare` does.

        Args:
            ours: our values by the rival's names.
        """
        given, out = self.folder / "given.npz", self.folder / "out.npz"
        self.ask("compare", given=str(given), out=str(out))
        theirs = np.load(out)
        errors = {name: _gap(value, theirs[name].reshape(value.shape)) for name, value in ours.items()}
        worst = max(errors, key=lambda name: errors[name])
        assert errors[worst] < LARGEST_ERROR, (
            f"{worst} of {self.spec['system']} differs from ours by {errors[worst]:.1e}"
        )
        return errors[worst]


def spec_of(graph: GraphArtifacts, config: TrainConfig, fanouts: tuple[int, ...], batch_size: int) -> dict[str, Any]:
    """Returns what a rival is told, but for its system.

    Args:
        graph: the graph and its features.
        config: model, widths, learning rate and threads.
        fanouts, batch_size: how mini-batches are drawn.
    """
    names = ("indptr", "indices", "labels", "train_ids", "valid_ids")
    files = {name: str(graph.graph.path / f"{name}.npy") for name in names}
    model = {name: getattr(config, name) for name in ("model", "hidden", "heads", "norm", "dropout", "lr", "threads")}
    shape = {"fanouts": list(fanouts), "batch_size": batch_size, "rows": str(graph.features.path / "rows.npy")}
    return files | model | shape | {"classes": graph.graph.summary["numbers"]["num_classes"]}


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Returns the median seconds by name."""
    return {name: round(statistics.median(each), 4) for name, each in seconds.items()}


def ratios(seconds: Mapping[str, list[float]], ours: str = "ours") -> dict[str, float]:
    """Returns each rival's median over that of ours."""
    found = medians(seconds)
    return {f"{name} / {ours}": round(value / found[ours], 3) for name, value in found.items() if name != ours}


def of_both_clocks(rounds: Mapping[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """Returns medians and ratios of seconds of the clock and of the processors, and the rounds of the first.

    Args:
        rounds: name -> (seconds, processor seconds) of each round.
    """
    seconds, processor = ({name: [each[kind] for each in took] for name, took in rounds.items()} for kind in (0, 1))
    row = {"seconds": medians(seconds), "ratios": ratios(seconds), "rounds": seconds}
    return row | {"processor": medians(processor), "processor_ratios": ratios(processor)}


def _our_values(graph: GraphArtifacts, config: TrainConfig, fanouts: tuple[int, ...], given: Path) -> dict[str, Any]:
    """Writes what a rival gets. Returns our logits and gradients by the rival's names."""
    opened = graph.open()
    model = build_model(config, opened.features.width, opened.num_classes, seed=0)
    seeds = np.asarray(opened.train_ids[:256])
    blocks = Sampler(opened.topology, fanouts, seed=3).sample(
        BatchKey(Stream.PROBE, 0, 0), seeds, transpose=model.transpose
    )
    x = np.array(opened.features.open()[blocks[0].src_ids], np.float32)
    labels = np.asarray(opened.labels)[seeds]
    logits = model(blocks, torch.from_numpy(x), StepRandom(0, training=False))
    cross_entropy(logits, torch.from_numpy(labels).long()).backward()
    found, parameters = {"logits": logits.detach().numpy()}, {}
    for theirs, parameter in _named_by_rival(model, config):
        parameters[theirs], found[theirs] = parameter.detach().numpy(), parameter.grad.numpy()
    written = {"x": x, "labels": labels} | parameters
    if isinstance(model, OwnModule) and model.takes_graph:
        whole = to_subgraph(blocks)
        edges = [(*whole.edge_index.numpy(), (whole.num_nodes, whole.batch_size))]
    else:
        own = config.model == "gat"
        edges = [(*block_edges(block, own), (block.num_src, block.num_dst)) for block in blocks]
    for index, (src, dst, sizes) in enumerate(edges):
        written |= {f"src{index}": src, f"dst{index}": dst, f"sizes{index}": np.array(sizes)}
    np.savez(given, **written)
    return found


def _named_by_rival(model: Model, config: TrainConfig) -> Iterator[tuple[str, Any]]:
    """Yields the parameters of a model by the rival's names; a module of PyG has its own on both sides."""
    if isinstance(model, OwnModule):
        yield from model.inner.named_parameters()
        return
    for index, layer in enumerate(model.layers):  # pyright: ignore[reportArgumentType]
        for name, parameter in layer.named_parameters():
            ending = f"norms.{index}.{name.removeprefix(NORM)}"
            yield ending if name.startswith(NORM) else f"layers.{index}.{NAMES[config.model][name]}", parameter


def block_edges(block: Block, own: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns src, dst, int64[E] each; with an edge from each destination to itself if the layer includes the node."""
    dst = np.repeat(np.arange(block.num_dst), block.end - block.start)
    each = np.arange(block.num_dst if own else 0)
    return np.concatenate([block.indices.astype(np.int64), each]), np.concatenate([dst, each])


def _gap(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm(one - other) / max(float(np.linalg.norm(other)), 1e-12))
