"""The table `[task]` of a pipeline file: what a model learns, and how the edges that it predicts are split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.assets.tasks.labels import CLASSES, LINKS, ON_EDGES, Kind
from graphmill.assets.tasks.lengths import length_problem

OF_CANDIDATES = {"candidates", "source_candidates", "uniform_candidates"}
"""Keys of `[task]` about what links are ranked among."""
LinkSplit = Literal["random", "time", "given"]
LINK_SPLITS: Mapping[LinkSplit, str] = {"random": "", "time": "times", "given": "split"}
"""Split of links -> what the edges of a source must have for it."""


@dataclass(frozen=True, kw_only=True)
class TaskTable(Checked):
    """The keys of `[task]`."""

    # What a model learns of a node: classes = one class; multilabel = any number of labels; regression = one number or several. Or of
    # two nodes: links = whether an edge joins them. Or of an edge: edge_classes = one class; edge_regression = a number.
    kind: Kind = CLASSES
    # Relations whose edges are predicted, as in `fanouts`; none are all relations of the graph. The reverse of a relation follows it.
    relations: tuple[str, ...] = ()
    # Split of the links: "random" draws it, "time" trains on the oldest links and tests the newest, "given" is that of the source.
    split: LinkSplit = "random"
    # split = "time": least time between the parts. What is newer than the next part's first link, less this length, is in no part, and no
    # message: a number in the unit of the times, or of dates a length such as "7d". None for no gap.
    gap: float | str | None = field(default=None, metadata={"hashed": "unless default"})
    # Shares of the links of each relation; the rest is for testing. Unused if the split is given.
    train_ratio: float = 0.85
    valid_ratio: float = 0.05
    # Edges of the stored topology, over which a model passes messages: those of links to train on, or of links to validate as well.
    message_edges: Literal["train", "train+valid"] = "train"
    # A Parquet file that names candidates of each link to validate or to test. The link is ranked among them as well: "mrr_given".
    candidates: Path | None = field(default=None, metadata={"hashed": False})
    # Whether links are ranked among the candidates that the source has for them as well, which ogbl-* datasets do: "mrr_given".
    source_candidates: bool = field(default=False, metadata={"hashed": "unless default"})
    # Number of nodes that are drawn for each end of a link, among which it is ranked as well: "mrr_uniform_100" of 100.
    uniform_candidates: int = field(default=0, metadata=within(0, 1 << 20, hashed="unless default"))

    remedy = ""

    def problems(self) -> Iterator[KeyProblem]:
        """Yields keys of links beside another kind, ratios beside a given split, and ratios that leave no link to train on."""
        changed = {each.name for each in fields(self) if getattr(self, each.name) != each.default} - {"kind"}
        if problem := length_problem("gap", self.gap):
            yield KeyProblem("gap", problem)
        if self.gap is not None and self.split != "time":
            yield KeyProblem("gap split", f"gap = {self.gap!r} is for split = 'time': set it, or leave gap out")
        if self.kind in ON_EDGES:
            foreign = changed & OF_CANDIDATES if self.kind != LINKS else set[str]()
        else:
            foreign = changed - ({"split", "gap"} if self.split == "time" else {"gap"})
        for key in sorted(foreign):
            yield KeyProblem(f"{key} kind", f"{key} is a key of links: set kind = 'links', or leave it out")
        if self.kind not in ON_EDGES:
            return
        train, valid = self.train_ratio, self.valid_ratio
        if self.split == "given":
            for key in sorted(changed & {"train_ratio", "valid_ratio"}):
                yield KeyProblem(
                    key, f"{key} = {getattr(self, key)!r} has no effect with split = 'given': leave it out"
                )
        elif not (train > 0 and valid >= 0 and train + valid <= 1):
            text = f"train_ratio = {train} and valid_ratio = {valid} do not split the links"
            how = "give train_ratio > 0, valid_ratio >= 0 and a sum of at most 1"
            yield KeyProblem("train_ratio valid_ratio", f"{text}: {how}")
        if self.source_candidates and self.split != "given":
            text = f"source_candidates = true, but split = {self.split!r} is not that of the source"
            yield KeyProblem("source_candidates split", f"{text}: set split = 'given', or leave source_candidates out")
        if self.source_candidates and self.candidates is not None:
            text = "source_candidates = true beside a file of candidates: give one of them"
            yield KeyProblem("source_candidates candidates", text)
        if len(set(self.relations)) < len(self.relations):
            yield KeyProblem("relations", f"relations = {list(self.relations)} names a relation twice: name each once")


def sound_task(given: Any, tables: Any) -> TaskTable | None:
    """Returns `[task]` without the keys that are wrong, by which other tables are judged; None if its kind is wrong.

    Args:
        given: the table as the file has it.
        tables: the file's tables (assets/pipeline/schema.py), which parse it.
    """
    if not isinstance(given, Mapping):
        return None
    task, wrong = tables.parse(TaskTable, given, ("task",))
    if not wrong:
        return task
    kind = {"kind": given["kind"]} if "kind" in given else {}
    if tables.parse(TaskTable, kind, ("task",))[1]:
        return None
    sound = {
        key: value for key, value in given.items() if not tables.parse(TaskTable, kind | {key: value}, ("task",))[1]
    }
    task = tables.parse(TaskTable, sound, ("task",))[0]
    return task if task is not None else tables.parse(TaskTable, kind, ("task",))[0]
