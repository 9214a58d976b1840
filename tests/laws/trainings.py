"""One small graph with every stage before a training, for the laws that hold for each technique whatever a recipe asks for.

`Case` is a recipe on that graph. `CELLS` has what a technique promises of a recipe, by the name of the technique; each cell compares
trainings with one another, to the bit wherever the project promises bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.building.stage import Progress
from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.assets.tasks.labels import OF_LABEL, ON_EDGES, Kind
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.group import ALONE, Ranks
from graphmill.trainers.recipe.config import TrainTable, model_configs
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.run import train_table
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.assets.sampling_tables.tables import with_tables
from tests.graphs import GraphArtifacts
from tests.recipes import PACKED
from tests.recipes import recipe as file_text
from tests.trainers import graphs
from tests.trainers.ranks.threads import run_threads
from tests.trainers.rows.caches import cache_inputs
from tests.trainers.runs import Stops, build_chunks, build_shards, content, count_inputs, losses, stored_rows

SMALL: dict[str, Any] = {
    "layers": 2,
    "hidden": 8,
    "epochs": 3,
    "eval_every": 3,
    "lr": 0.05,
    "accumulate": 3,
    "threads": 1,
}
KEPT: dict[str, Any] = {"t_stale": 3, "p_grad": 0.8, "arena": "60%", "policy": "accuracy+features"}
"""Settings with which embeddings of earlier steps are used."""

SAMPLING = SamplingConfig(fanouts=(4, 3), batch_size=64)
"""Four batches in an epoch, the last of them a step of its own."""
STOP = 6
"""Batches behind which a training is stopped: behind the first step of the second of three epochs."""

RESULT = ("weights.safetensors", "metrics.jsonl")
ONE_BATCH = SamplingConfig(fanouts=(-1, -1), batch_size=2000)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a pipeline asks for.

    Attributes:
        table: keys of `[[train]]`.
        sampling: the table `[sampling]`.
        relations, type_columns, weights, labels: of the graph, as in tests/trainers/graphs.py.
        refused: technique -> the text by which `graphmill validate` refuses the recipe for it.
    """

    table: Mapping[str, Any] = field(default_factory=dict)
    sampling: SamplingConfig = SAMPLING
    relations: int = 0
    type_columns: tuple[int, ...] = ()
    weights: bool = False
    labels: Kind = "classes"
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def reused(self) -> SamplingConfig:
        """The table `[sampling]` with two sampling epochs in turn, so that batches may be stored."""
        return self.sampling if self.sampling.schedule else replace(self.sampling, reuse=2)


class Case:
    """A recipe with everything that its trainings read; stages are built when the first training asks for them."""

    def __init__(self, home: Path, recipe: Recipe):
        self.home, self.recipe, self._number = home, recipe, 0
        self.reused = recipe.reused
        with graphs.attributed(recipe.relations, recipe.type_columns, recipe.weights, recipe.labels):
            made = graphs.link_graph_artifacts if recipe.labels in ON_EDGES else graphs.random_graph_artifacts
            self.graph: GraphArtifacts = made(home)
        self._parts: dict[int, dict[str, Artifact]] = {}
        self._chunks: dict[tuple[int, int], Artifact] = {}

    @cached_property
    def plain(self) -> Artifact:
        """The model of mini-batches, with which every exact technique is compared."""
        return self.train("minibatch")

    @cached_property
    def hotness(self) -> Artifact:
        """What batches ask for, by layer."""
        return count_inputs(self.home, with_tables(self.home, self.graph.inputs, self.reused), self.reused)

    @cached_property
    def packed(self) -> Packed:
        """Two sampling epochs and their rows."""
        return build_packed(self.home, graph=self.graph, epochs=2, sampling=self.reused, memory={"disk": "5x"})

    @cached_property
    def kept(self) -> Artifact:
        """The model of embeddings of earlier steps."""
        return self.train("fresh", settings=KEPT)

    @cached_property
    def shared(self) -> Artifact:
        """The model of two parts on one rank."""
        return self.train("distributed")

    @property
    def storable(self) -> bool:
        """Whether batches may be stored."""
        return "disk" not in self.recipe.refused

    def parts(self, parts: int) -> dict[str, Artifact]:
        """The partitions and shards of so many parts; all ranks ask for them, so they are built before."""
        if parts not in self._parts:
            inputs, shards = build_shards(self.home, self.graph.inputs, parts)
            self._parts[parts] = {"partitions": inputs["partitions"], "shards": shards}
        return self._parts[parts]

    def chunks(self, parts: int, chunks: int) -> Artifact:
        """The chunks of a cut graph."""
        if (parts, chunks) not in self._chunks:
            self._chunks[parts, chunks] = build_chunks(self.home, self.graph.graph, parts, chunks)
        return self._chunks[parts, chunks]

    def train(
        self,
        trainer: str,
        place: str = "",
        *,
        settings: Mapping[str, Any] | None = None,
        cut: tuple[int, int] = (2, 3),
        cached: bool = False,
        sampling: SamplingConfig | None = None,
        ranks: Ranks = ALONE,
        resume: bool = False,
        progress: Progress | None = None,
        **keys: Any,
    ) -> Artifact:
        """Trains a model of the recipe; ranks behind the first one return another's.

        Args:
            place: folder of the model; trainings with a place of their own share nothing.
            settings: of the technique.
            cut: parts, and chunks per part, where the technique reads them.
            cached: whether rows are cached.
            sampling: in the place of the recipe's.
            keys: of the train table, over those of the recipe.
        """
        kind = find_technique(trainer).settings_type()
        made = kind(**settings) if kind is not None and settings else None
        table = TrainTable(
            **(SMALL | {"name": "small", "trainer": trainer, "settings": made} | self.recipe.table | keys)
        )
        drawn = self.reused if sampling is None else sampling
        inputs = dict(self.graph.inputs) if not table.sampled_by else with_tables(self.home, self.graph.inputs, drawn)
        inputs |= {name: self._stage(name, cut) for name in table.inputs}
        reads = {name: self._stage(name, cut) for name in table.reads if name not in ("hotness", "budgets")}
        if cached:
            reads |= cache_inputs(self.home, self.graph, device="10%", host="20%")
        if not place:
            place, self._number = f"model {self._number}", self._number + 1
        made_of: dict[str, Any] = {"reads": reads, "ranks": ranks, "resume": resume, "progress": progress}
        store = Store(self.home / place)
        found = train_table(store, inputs, table, drawn, 5, report=lambda line: None, **made_of)
        return found[0] if found else self.graph.graph

    def by_ranks(self, world: int, trainer: str, **how: Any) -> Artifact:
        """Trains a model on so many ranks, which are threads."""
        self.parts(how.get("cut", (2, 3))[0])
        if trainer.startswith("fresh"):
            assert self.hotness
        place, self._number = f"model {self._number}", self._number + 1
        place = how.pop("place", place)
        with_tables(self.home, self.graph.inputs, self.reused)
        return run_threads(world, lambda ranks: self.train(trainer, place, ranks=ranks, **how))[0]

    def _stage(self, name: str, cut: tuple[int, int]) -> Artifact:
        """The artifact of a stage that a training reads."""
        if name == "hotness":
            return self.hotness
        if name == "chunks":
            return self.chunks(*cut)
        return self.parts(cut[0])[name] if name in ("partitions", "shards") else stored_rows(self.packed)[name]

    def resumed(self, trainer: str, after: int = STOP, world: int = 1, **how: Any) -> Artifact:
        """Stops a training behind so many batches, and goes on from its checkpoint, on so many ranks."""
        place, self._number = f"stopped {self._number}", self._number + 1
        how |= {} if find_technique(trainer).whole_graph else {"checkpoint_steps": 1}
        with pytest.raises(ConnectionAbortedError):
            self.train(trainer, place, progress=Stops(after), **how)
        assert list((self.home / place / "checkpoints").glob("*.safetensors"))
        if world > 1:
            return self.by_ranks(world, trainer, place=place, resume=True, **how)
        return self.train(trainer, place, resume=True, **how)


def case_of(recipes: Mapping[str, Recipe], slow: Mapping[str, str] | None = None) -> Any:
    """Returns a fixture of a module, the case of each recipe in turn.

    Args:
        recipes: name -> recipe.
        slow: name of a recipe that is left to the long run -> what it alone covers.
    """
    marks = {name: [pytest.mark.slow(text)] for name, text in (slow or {}).items()}
    params = [pytest.param(recipe, id=name, marks=marks.get(name, [])) for name, recipe in recipes.items()]

    @pytest.fixture(scope="module", params=params)
    def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
        return Case(tmp_path_factory.mktemp("case"), request.param)

    return case


def pipeline_text(recipe: Recipe, trainer: str) -> str:
    """The recipe as a pipeline file for a technique, with every table that has an effect on some technique of its kind."""
    given = {each.name: (getattr(recipe.reused, each.name), each.default) for each in fields(recipe.sampling)}
    sampling: dict[str, Any] = {name: value for name, (value, default) in given.items() if value != default}
    sampling |= {"schedule": [asdict(step) for step in recipe.sampling.schedule]} if recipe.sampling.schedule else {}
    kind, train = find_technique(trainer), {"name": "x", "trainer": trainer} | SMALL | dict(recipe.table)
    tables: dict[str, Any] = {"sampling": sampling} | PACKED | {"samples": {"epochs": 2}}
    if kind.whole_graph:
        tables = {"sampling": sampling} if train.get("eval") == "sampled" else {}
        train |= {"accumulate": 1}
    tables |= {"partitions": {"parts": 2}, "chunks": {}}
    tables |= {"task": {"kind": recipe.labels}} if recipe.labels != "classes" else {}
    graph = {"source": "pyg", "path": "graph.pt", "weight": "w"}
    if recipe.labels in OF_LABEL:
        graph = {"source": "edges", "edges": "edges.parquet", "label_column": "y"}
    return file_text(train, graph=graph, **tables)


def assert_validated(recipe: Recipe, trainer: str) -> None:
    """`graphmill validate` takes the recipe for a technique, or refuses it with the text that the recipe states."""
    refused = recipe.refused.get(trainer)
    with pytest.raises(InputError, match=refused) if refused else nullcontext():
        parse_pipeline(Path(__file__).with_suffix(".toml"), pipeline_text(recipe, trainer).encode(), TrainTable)


def result(model: Artifact) -> list[str]:
    """The digests of weights and metrics."""
    return [content(model)[name] for name in RESULT]


def weights(model: Artifact) -> str:
    """The digest of the weights."""
    return content(model)["weights.safetensors"]


def passes(model: Artifact) -> bool:
    """Whether the ledger of a model is the planned one."""
    return all(check["passed"] for check in model.summary["checks"] if check["name"] == "ledger equals plan")


def counted(model: Artifact, name: str) -> int:
    """A count of the ledger, over all layers."""
    rows = json.loads(model.file("ledger.json").read_text())["counts"]
    return sum(row["n"] for row in rows if row["name"] == name)


def ran_as_long_as_asked(case: Case, model: Artifact) -> bool:
    """Whether a training with patience ended early, and one without had all epochs."""
    most, ran = (SMALL | dict(case.recipe.table))["epochs"], model.summary["numbers"]["epochs_run"]
    return 1 < ran < most if "patience" in case.recipe.table else ran == most


def minibatch(case: Case) -> None:
    """Samplers, queues, caches and stored batches change no bit, nor does a stop in the middle."""
    assert passes(case.plain) and losses(case.plain)[-1] < losses(case.plain)[0]
    assert ran_as_long_as_asked(case, case.plain)
    cached = case.train("minibatch", cached=True, samplers=3, queue="60kB")
    assert result(cached) == result(case.plain) and counted(cached, "hits_device") > 0
    if case.storable:
        assert result(case.train("minibatch", samples="stored")) == result(case.plain)
    assert content(case.resumed("minibatch")) == content(case.plain)


def disk(case: Case) -> None:
    """The bits of mini-batches, from packed rows."""
    straight = case.train("disk")
    assert result(straight) == result(case.plain) and passes(straight)
    assert content(case.resumed("disk")) == content(straight)


def factored(case: Case) -> None:
    """The model of mini-batches and its ledger, whoever samples and trains, and behind a stop."""
    split = {"samplers": 2, "trainers": 2}
    assert content(case.resumed("factored", settings=split)) == content(case.plain)


def fresh(case: Case) -> None:
    """The bits of mini-batches where nothing is kept; equal bits from a table and packed rows, and behind a stop, where something is."""
    assert weights(case.train("fresh", settings=KEPT | {"t_stale": 0})) == weights(case.plain)
    kept = case.kept
    assert counted(kept, "history_hits") > 0 and passes(kept) and losses(kept)[-1] < losses(kept)[0]
    if case.storable:
        packed = case.train("fresh", settings=KEPT | {"rows": "packed"}, samples="stored")
        assert weights(packed) == weights(kept)
    assert content(case.resumed("fresh", settings=KEPT)) == content(kept)


def fresh_factored(case: Case) -> None:
    """The model of one history and its ledger, whoever samples and trains, and behind a stop."""
    split = KEPT | {"samplers": 2, "trainers": 2}
    found = case.resumed("fresh-factored", settings=split)
    assert content(found) == content(case.kept) and passes(found)


def distributed(case: Case) -> None:
    """One part has the bits of mini-batches; two have those of one rank on two ranks, and from the checkpoint of one rank on two."""
    assert result(case.train("distributed", cut=(1, 0))) == result(case.plain)
    one = case.shared
    assert ran_as_long_as_asked(case, one)
    two = case.by_ranks(2, "distributed")
    assert result(two) == result(one) and passes(one) and passes(two) and counted(two, "hits_remote") > 0
    assert result(case.resumed("distributed", world=2)) == result(one)


def fresh_distributed(case: Case) -> None:
    """One part has the bits of one history; two have those of one rank on two ranks, and of `distributed` where nothing is kept."""
    assert result(case.train("fresh-distributed", cut=(1, 0), settings=KEPT)) == result(case.kept)
    nothing = case.train("fresh-distributed", settings=KEPT | {"t_stale": 0})
    assert weights(nothing) == weights(case.shared)
    one, two = case.train("fresh-distributed", settings=KEPT), case.by_ranks(2, "fresh-distributed", settings=KEPT)
    assert result(two) == result(one) and passes(one) and passes(two) and counted(one, "history_hits") > 0
    assert result(case.resumed("fresh-distributed", world=2, settings=KEPT)) == result(one)


def fullgraph(case: Case) -> None:
    """In float64 any cut has the losses of an uncut pass, and that has those of one batch of everything; stops and ranks change no bit.

    A recipe that differs by its [sampling] alone has the version of the recipe without that table, which decides nothing.
    """
    (semantic,) = model_configs(TrainTable(name="x", trainer="fullgraph", **case.recipe.table), case.reused, 5)
    assert semantic.sampling is None
    whole: dict[str, Any] = {"accumulate": 1, "epochs": 2, "eval_every": 1}
    whole |= {"dtype": case.recipe.table.get("dtype", "float64")}
    bound = 1e-10 if whole["dtype"] == "float64" else 2e-2
    uncut = case.train("fullgraph", settings={"mode": "device"}, **whole)
    batch = case.train("minibatch", sampling=ONE_BATCH, **whole)
    np.testing.assert_allclose(losses(uncut), losses(batch), rtol=bound)
    straight = case.train("fullgraph", **whole)
    np.testing.assert_allclose(losses(straight), losses(uncut), rtol=bound)
    assert passes(straight) and losses(straight)[-1] < losses(straight)[0]
    assert content(case.resumed("fullgraph", after=1, **whole)) == content(straight)
    two = case.by_ranks(2, "fullgraph", **whole)
    assert result(two) == result(straight) and passes(two)


CELLS: dict[str, Callable[[Case], None]] = {
    "minibatch": minibatch,
    "disk": disk,
    "factored": factored,
    "fresh": fresh,
    "fresh-factored": fresh_factored,
    "fullgraph": fullgraph,
    "distributed": distributed,
    "fresh-distributed": fresh_distributed,
}
"""Technique -> what it promises of every recipe."""


def assert_promised(case: Case, trainer: str) -> None:
    """A technique keeps its promises of a recipe, or the recipe is refused for it before anything is built."""
    assert_validated(case.recipe, trainer)
    if trainer not in case.recipe.refused:
        CELLS[trainer](case)
