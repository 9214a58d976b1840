"""The law of times: for every trainer that takes them and every kind of task, nothing that is drawn is later than its seed.

Each pair of nodes has one edge here, so an edge of a block has one time. What is watched are the draws of all samplers, of training,
stored batches and evaluation, and the batches that are trained on, whoever prepared them. Weights are those of "minibatch", to the bit,
and those of two ranks are those of one with the same parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.tasks.labels import LINKS, ON_EDGES
from graphmill.kernels.links.splits import TRAIN
from graphmill.kernels.temporal.sampler import TemporalSampler
from graphmill.kernels.types import Array, Block
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.loop.executor import BatchGradient
from graphmill.trainers.recipe.inputs import find_table_inputs
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.laws.asked import CACHED, PACKED_ROWS, SAMPLING, STORED, Ask, pipeline_text
from tests.laws.made import Made
from tests.laws.test_options import EXACT
from tests.trainers.runs import content

NODES, EDGES, LAST = 160, 1500, 1000
BEFORE: dict[str, Any] = SAMPLING | {"before": "seed", "window": 600.0}
KINDS = ("classes", "multilabel", "regression", LINKS, "edge_classes", "edge_regression")
ALSO: dict[str, list[Ask]] = {
    "minibatch": [Ask(keys={"samples": "stored"}, tables=STORED), Ask(tables=CACHED)],
    "factored": [Ask(keys={"samples": "stored"}, tables=STORED), PACKED_ROWS, Ask(own={"trainers": 2})],
    "distributed": [
        Ask(keys={"samples": "stored"}, tables=STORED),
        PACKED_ROWS,
        Ask(own={"ranks": 2}, tables={"partitions": {"parts": 2}}),
    ],
}
"""Technique -> other ways in which its batches are prepared."""
BY_WEIGHT: dict[str, Ask] = {
    "classes": Ask(
        sampling={"method": "weighted", "weights": "node:weight"},
        tables={"features": {"weight": {"file": "weights.npy"}}},
    ),
    LINKS: Ask(sampling={"method": "weighted"}, graph={"weight_column": "weight"}),
}
"""Kind of task -> what a file asks for to draw by weights of nodes or of edges. The latest edges have nearly all of the weight."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    found = Made(tmp_path_factory.mktemp("made"))
    write_timed(found.folder)
    return found


def timed_edges() -> tuple[Array, Array, Array]:
    """Sources, targets and times of edges between different nodes, each pair once in one direction."""
    rng = np.random.default_rng(11)
    pairs = rng.permutation(NODES * (NODES - 1) // 2)[:EDGES]
    low, high = (each[pairs] for each in np.triu_indices(NODES, 1))
    turned = rng.random(EDGES) < 0.5
    return np.where(turned, high, low), np.where(turned, low, high), rng.permutation(EDGES) * LAST / EDGES


def write_timed(folder: Path) -> None:
    """The graph of `timed_edges` as archives with labels of nodes of each kind, and as tables with labels of edges."""
    rng, (source, target, times) = np.random.default_rng(12), timed_edges()
    classes = np.arange(NODES) % 3
    labels = {"classes": classes, "multilabel": np.eye(3)[classes], "regression": rng.normal(classes)}
    x = (rng.normal(size=(NODES, 6)) + 2 * np.eye(3, 6)[classes]).astype(np.float32)
    for kind, y in labels.items():
        parts = dict(zip(("train", "val", "test"), np.split(rng.permutation(NODES), [100, 130]), strict=True))
        np.savez(
            folder / f"of_{kind}.npz",
            edge_index=np.stack([source, target]),
            edge_time=times,
            node_time=rng.integers(LAST // 3, LAST, NODES),
            x=x,
            y=y.astype(np.int64 if kind != "regression" else np.float32),
            **parts,
        )
    np.save(folder / "weights.npy", 10.0 ** rng.integers(-2, 3, NODES).astype(np.float32)[:, None])
    frame = pl.DataFrame({"src": source, "dst": target, "time": times, "word": classes[source], "number": x[source, 0]})
    frame = frame.with_columns(weight=10.0 ** (times / 100 - 5))
    frame.write_csv(folder / "of_edges.csv")
    pl.DataFrame({"id": np.arange(NODES)} | {f"f{i}": x[:, i] for i in range(6)}).write_csv(folder / "of_nodes.csv")


def ask_of(kind: str) -> Ask:
    """What a file asks for to learn a kind as of times."""
    task: dict[str, Any] = {"kind": kind}
    if kind not in ON_EDGES:
        graph: dict[str, Any] = {"source": "npz", "path": f"of_{kind}.npz"}
        keys: dict[str, Any] = {}
    else:
        task |= {"split": "time", "train_ratio": 0.7, "valid_ratio": 0.15}
        graph = {"source": "edges", "edges": "of_edges.csv", "nodes": "of_nodes.csv", "time_column": "time"}
        graph |= {"features": [f"f{i}" for i in range(6)]}
        graph |= {"edge_classes": {"label_column": "word"}, "edge_regression": {"label_column": "number"}}.get(kind, {})
        keys = {"metric": "auc"} if kind == LINKS else {}
        task |= {"uniform_candidates": 5} if kind == LINKS else {}
    tables = {} if kind == "classes" else {"task": task}
    return Ask(keys={"eval": "sampled"} | keys, sampling=BEFORE, graph=graph, tables=tables)


class Watch:
    """Counts the edges of all draws and of all trained batches, and those that are not earlier than their seed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        source, target, times = timed_edges()
        self.time = np.full((NODES, NODES), np.nan)
        self.time[source, target] = self.time[target, source] = times
        self.graph: Graph | None = None
        self.drawn = self.trained = 0
        self.window = BEFORE["window"]
        draw, compute = TemporalSampler.timed, BatchGradient.__call__

        def timed(sampler: TemporalSampler, batch: Any, seeds: Any, times: Any, **how: Any) -> Any:
            found = draw(sampler, batch, seeds, times, **how)
            self.require_times(np.asarray(seeds), np.asarray(times))
            self.drawn += self.past(found.blocks, np.asarray(times, float))
            return found

        def computed(gradient: BatchGradient, batch: MiniBatch, *between: Any) -> Any:
            if len(batch.seeds):
                self.trained += self.past(batch.blocks, self.times_of(batch))
            return compute(gradient, batch, *between)

        monkeypatch.setattr(TemporalSampler, "timed", timed)
        monkeypatch.setattr(BatchGradient, "__call__", computed)

    def past(self, blocks: tuple[Block, ...], times: Array) -> int:
        """The number of edges of blocks; each is earlier than the seed above it and not older than the window, at every depth."""
        count = 0
        for block in reversed(blocks):
            assert len(times) == block.num_dst
            known = np.full(block.num_src, np.nan)
            known[: block.num_dst] = times
            row = np.repeat(np.arange(block.num_dst), block.end - block.start)
            as_of, edge = times[row], self.time[block.src_ids[block.indices], block.src_ids[row]]
            assert ((edge < as_of) & (edge >= as_of - self.window)).all()
            known[block.indices] = as_of
            assert not np.isnan(known).any()
            times, count = known, count + len(row)
        return count

    def times_of(self, batch: MiniBatch) -> Array:
        """The times of the nodes whose rows the loss of a batch reads, by its seeds: nodes, or training edges."""
        assert self.graph is not None
        if self.graph.links is None:
            assert self.graph.node_times is not None
            return np.asarray(self.graph.node_times)[batch.seeds]
        assert self.graph.links.times is not None
        own = np.asarray(self.graph.links.times)[np.asarray(self.graph.links.split) == TRAIN][batch.seeds]
        found = np.full(batch.blocks[-1].num_dst, np.nan)
        for edge, pairs in zip(own, np.asarray(batch.labels)[:, :, :2], strict=True):
            assert (np.isnan(found[pairs]) | (found[pairs] == edge)).all()  # no node is seen as of two times
            found[pairs] = edge
        return found

    def require_times(self, seeds: Array, times: Array) -> None:
        """Every seed of a draw is seen as of its own time, or of that of a link."""
        if self.graph is None:
            return
        if self.graph.links is None:
            np.testing.assert_array_equal(times, np.asarray(self.graph.node_times)[seeds])
        else:
            assert np.isin(times, np.asarray(self.graph.links.times)).all()


def graph_of(made: Made, pipeline: Pipeline) -> Graph:
    (table,) = pipeline.train
    return open_graph(find_table_inputs(pipeline, table, made.store, {}).inputs["graph"])


def trained(made: Made, watch: Watch, trainer: str, ask: Ask, **keys: Any) -> Artifact:
    """A model whose draws and batches were watched."""
    pipeline = made.parse(pipeline_text(trainer, ask, **keys))
    watch.graph = None
    made.build(pipeline)
    watch.graph, watch.drawn, watch.trained = graph_of(made, pipeline), 0, 0
    return made.train(pipeline)


def cases() -> Iterator[Any]:
    """Every technique that takes times with every kind of task, and for classes and links each way in which its batches are prepared."""
    for trainer, technique in TECHNIQUES.items():
        if any(limit.option == "before" and not limit.when for limit in technique.limits()):
            continue
        for kind in KINDS:
            yield pytest.param(trainer, kind, Ask(), False, id=f"{trainer}-{kind}")
        for kind in BY_WEIGHT:
            yield pytest.param(trainer, kind, Ask(), True, id=f"{trainer}-{kind}-weighted")
        for number, ask in enumerate(ALSO.get(trainer, ())):
            for kind in ("classes", LINKS):
                yield pytest.param(trainer, kind, ask, True, id=f"{trainer}-{kind}-{number}-weighted")
                if number:
                    yield pytest.param(trainer, kind, ask, False, id=f"{trainer}-{kind}-{number}")


def test_four_techniques_take_times() -> None:
    assert {case.values[0] for case in cases()} == {"minibatch", "disk", "factored", "distributed"}


@pytest.mark.parametrize(("trainer", "kind", "also", "by_weight"), [*cases()])
def test_nothing_later_than_its_seed_is_drawn_or_trained_on(
    made: Made, monkeypatch: pytest.MonkeyPatch, trainer: str, kind: str, also: Ask, by_weight: bool
) -> None:
    base = ask_of(kind) | (BY_WEIGHT[kind] if by_weight else Ask())
    watch, name = Watch(monkeypatch), "-".join(map(str, (*also.keys.values(), *also.own.values(), *also.tables)))
    alone = "partitions" in also.tables and also.tables["partitions"]["parts"] > 1
    ask = base | also | (Ask() if alone else EXACT.get(trainer, Ask()))
    text = pipeline_text(trainer, ask, trial=f"watched {name}")
    if trainer == "distributed" and kind in ON_EDGES and "samples" in also.keys:
        with pytest.raises(Exception, match="draws batches of links on each rank"):
            made.parse(text)
        return
    model = trained(made, watch, trainer, ask, trial=f"watched {name}")
    assert watch.trained > 1000
    assert watch.drawn > 100  # of evaluations at least
    # Parts are another recipe, which any number of ranks trains.
    other = (trainer, ask | Ask(own={"ranks": 1})) if alone else ("minibatch", base)
    plain = trained(made, watch, *other)
    assert content(model)["weights.safetensors"] == content(plain)["weights.safetensors"]
    scores = {key: value for key, value in model.summary["numbers"].items() if key.startswith(("test", "valid"))}
    assert scores and scores == {key: plain.summary["numbers"][key] for key in scores}


@pytest.mark.parametrize("kind", ["classes", LINKS])
def test_the_watch_sees_a_leak(made: Made, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Draws as of a later time than the seeds' are noticed."""
    draw = TemporalSampler.timed
    monkeypatch.setattr(
        TemporalSampler, "timed", lambda self, batch, seeds, times, **how: draw(self, batch, seeds, times + 300, **how)
    )
    watch = Watch(monkeypatch)
    with pytest.raises(AssertionError):
        trained(made, watch, "minibatch", ask_of(kind), trial="leaks")
