"""What the build of an artifact or a training will take of the machine, added up before it starts.

Each stage has a formula, `Stage.need`, of what is known of the graph then (`Sizes`). `graphmill inspect` asks it about every step of a
pipeline before anything is built, when sizes are bounds, and `materialize` before it builds, when its inputs exist and sizes are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.system.control_group import free_bytes, limit_bytes
from graphmill.assets.storage.system.machine import anonymous_bytes
from graphmill.kernels.environment import ANY_MEMORY, read
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import id_dtype

STEP_BYTES = 109 << 20
"""Anonymous memory of the process of a step before it builds: Python, Dagster and the libraries that an import loads."""
FIGURE_BYTES = 27 << 20
"""What a library for figures takes beside that."""
WORKER_BYTES = 34 << 20
"""Anonymous memory of a process that builds parts (assets/building/parts.py) before it builds."""
COMMAND_BYTES = 110 << 20
"""The command that waits for the steps of a large pipeline, which run in processes of their own, and what Dagster starts beside them."""
EDGE_ROLE = "features.edges"
"""Role of the table of rows of edges among what a step reads."""
KERNEL_BYTES = 16 << 20
"""What the system takes for the processes of a step, which is in use and in no sum: page tables, sockets, stacks."""
PASS_SPEED = 600e6
"""Bytes of the edges that a pass reads, compares and answers in a second (`python -m benchmarks topology`, docs/needs.md)."""
MARGIN = 0.15
"""Share by which formulas may say more than a step takes: so much above the memory that is there, a step is still let try."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is known of a graph, and of what a step reads, before the step begins.

    Attributes:
        num_nodes, num_edges: N and E; without the graph's artifact, the most that its source can give.
        num_train, num_valid, num_test: numbers of nodes, or links, of the splits; likewise.
        num_classes: number of classes; 0 if it is not known.
        num_rows, width, row_bytes: rows, columns and bytes per row of the feature table that the step reads; 0 if it reads none.
        num_edge_rows, edge_width, edge_row_bytes: the same of the table of rows of edges.
        type_widths: columns of the node types' own features, 0 for a type without; () if they are not known, or nodes have no types.
        configs: role -> Semantic config of every step that it reads, directly or through others; empty if artifacts are given.
        artifacts: role -> artifact, for those of these that exist.
        survey: the `Survey` of the source, for the stages that read it; None if the graph and its features exist.
    """

    num_nodes: int
    num_edges: int
    num_train: int = 0
    num_valid: int = 0
    num_test: int = 0
    num_classes: int = 0
    num_rows: int = 0
    width: int = 0
    row_bytes: int = 0
    num_edge_rows: int = 0
    edge_width: int = 0
    edge_row_bytes: int = 0
    type_widths: tuple[int, ...] = ()
    configs: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    survey: Any = None

    @property
    def exact(self) -> bool:
        """Whether the graph exists, so that its sizes are exact."""
        return "graph" in self.artifacts

    @property
    def trains_counted(self) -> bool:
        """Whether the training nodes were counted; of a source that is not read, all nodes stand for them."""
        return self.exact or 0 < self.num_train < self.num_nodes

    @property
    def id_bytes(self) -> int:
        """Bytes of a node id."""
        return id_dtype(self.num_nodes).itemsize

    @property
    def topology_bytes(self) -> int:
        """Bytes of the topology that sampling maps: starts, and sources."""
        return 8 * (self.num_nodes + 1) + self.id_bytes * self.num_edges

    @property
    def feature_bytes(self) -> int:
        """Bytes of all rows of the feature table."""
        return self.num_rows * self.row_bytes

    @property
    def edge_bytes(self) -> int:
        """Bytes of all rows of edges."""
        return self.num_edge_rows * self.edge_row_bytes

    def with_edge_rows(self, num_rows: int, width: int, row_bytes: int) -> Sizes:
        """Returns the sizes with those of the table of rows of edges."""
        return replace(self, num_edge_rows=num_rows, edge_width=width, edge_row_bytes=row_bytes)


@dataclass(frozen=True)
class Term:
    """One summand of a need.

    Attributes:
        name: the thing that takes the bytes, in a few words: "rows in the host cache".
        most: bytes that it takes at most.
        key: key of the pipeline file that lowers it, "[memory] host"; "" if none does.
        bound: whether a size that is not known yet was counted at its bound, so that the step may take less.
        likely: bytes that are expected, if more is known than a need allows for; None for `most`.
        enough: bytes with which it does, if it takes more only where more is free; None for `most`.
    """

    name: str
    most: int
    key: str = ""
    bound: bool = False
    likely: int | None = None
    enough: int | None = None

    @property
    def least(self) -> int:
        """Bytes that it takes for certain."""
        enough = self.most if self.enough is None else self.enough
        return 0 if self.bound else enough

    @property
    def expected(self) -> int:
        """Bytes that it is expected to take."""
        return self.most if self.likely is None else self.likely

    def times(self, count: int) -> Term:
        """Returns the term of a number of processes that each have it."""
        likely, enough = (None if each is None else count * each for each in (self.likely, self.enough))
        return replace(self, most=count * self.most, likely=likely, enough=enough)


COMMAND = Term("the command that waits for the step", COMMAND_BYTES)
LIBRARIES = Term("Python and libraries", STEP_BYTES)
"""The process of a step before it builds."""
DRAWING = Term("Python and libraries", STEP_BYTES + FIGURE_BYTES)
"""The process of a step that draws figures."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast a stage works on the machine that docs/needs.md names; other machines measure their own when they build."""

    # Units of work per second; `Stage.need` says which.
    per_second: float
    # Number of the artifact's summary that is its work, if the record of its build does not have it.
    number: str = ""


class EdgePasses(NamedTuple):
    """Passes over the edges of a graph, and the bytes that they read."""

    count: int
    num_bytes: int

    @property
    def seconds(self) -> float:
        """Seconds of the reads on the machine that docs/needs.md names."""
        return self.num_bytes / PASS_SPEED

    def times(self, number: int) -> EdgePasses:
        """Returns the passes of a number of rounds."""
        return EdgePasses(number * self.count, number * self.num_bytes)


@dataclass(frozen=True, kw_only=True)
class Need:
    """The need of one artifact or training.

    Attributes:
        phases: summands of anonymous memory, over all processes of the step, of each of its phases: what one takes is free again in the
            others, or not taken yet. Pages of mapped files are not among them.
        stored: bytes that stay in the store.
        scratch: bytes of disk that are free again afterwards.
        stored_at_most: whether `stored` is a bound.
        work: number of units of `Stage.speed` that take the time: edges, batches, bytes; 0 if it takes none worth a word.
        passes: passes over the edges that draw batches, at most (assets/sampling/passes.py).
        decided: whether bounds are near enough to refuse the step by them: of a training whose inputs are there.
    """

    name: str
    phases: tuple[tuple[Term, ...], ...]
    stored: int = 0
    stored_at_most: bool = False
    scratch: int = 0
    work: float = 0
    passes: EdgePasses | None = None
    decided: bool = False

    @property
    def memory(self) -> tuple[Term, ...]:
        """The phase that may take the most."""
        return max(self.phases, key=_sum)

    @property
    def memory_bytes(self) -> int:
        """The sum of `memory`, the peak."""
        return _sum(self.memory)

    @property
    def certain(self) -> tuple[Term, ...]:
        """The phase whose exact terms take the most."""
        return max(self.phases, key=lambda terms: sum(term.least for term in terms))

    @property
    def least_bytes(self) -> int:
        """The bytes that the step takes for certain."""
        return sum(term.least for term in self.certain)

    @property
    def required(self) -> tuple[Term, ...]:
        """The phase that takes the most of what the step must have in order not to be ended for want of memory."""
        phases = (
            tuple(term if term.enough is None else replace(term, most=term.enough) for term in terms)
            for terms in self.phases
        )
        return max(phases, key=_sum)

    @property
    def required_bytes(self) -> int:
        """The sum of `required`."""
        return _sum(self.required)

    @property
    def is_bound(self) -> bool:
        """Whether the step may need less memory than the sum."""
        return self.least_bytes < self.memory_bytes

    def beside(self, term: Term) -> Need:
        """Returns the need with one more term in every phase."""
        return replace(self, phases=tuple((*phase, term) for phase in self.phases))

    def lines(self, phase: Sequence[Term] | None = None) -> Iterator[str]:
        """Yields one line per summand of the memory, or of one phase, largest first."""
        for term in sorted(self.memory if phase is None else phase, key=lambda term: -term.most):
            if term.most:
                lowers = f"   ({term.key} lowers it)" if term.key else ""
                yield f"{format_bytes(abs(term.most)):>9}  {term.name}{lowers}"


def _sum(terms: Sequence[Term]) -> int:
    return sum(term.most for term in terms)


def fits(need: Need, there: int) -> bool:
    """Returns whether a step fits a number of bytes: by its bound if that decides, else by what is certain, with the tolerance `MARGIN`."""
    return need.required_bytes <= there if need.decided else need.least_bytes <= there * (1 + MARGIN)


def require_fit(need: Need, there: int | None) -> None:
    """Refuses a need that exceeds the memory that is left for this process, before anything is allocated or opened.

    Args:
        need: the need. If its bound does not decide, what is counted at its bound is not refused, because less may do.
        there: bytes of memory, None if the system does not say.

    Raises:
        InputError: the sum is larger; the error lists the summands, and the keys that lower them.
    """
    if there is None or fits(need, there) or read(ANY_MEMORY) == "1":
        return
    phase = sorted(need.required if need.decided else need.certain, key=lambda term: -term.most)
    keys = dict.fromkeys(term.key for term in phase if term.key and term.most)
    fixed = sum(term.most for term in phase if not term.key)
    # In MiB, since the limit of a group is set by it.
    enough = f"at least {-(-_sum(phase) >> 20):,} MiB" if need.decided else ""
    remedy = f"lower {' or '.join(keys)}, in the file or by --set{enough and f', or give it {enough}'}"
    if not keys or fixed > there * (1 + MARGIN * (not need.decided)):
        limit, given = limit_bytes(), ""
        if limit is not None and limit >= there:
            given = f" of this container (control group), which is {format_bytes(limit)},"
        more = f"raise the memory limit{given} to" if given else "use a machine, or a memory limit, with"
        remedy = f"{more} {enough or f'at least {format_bytes(fixed)}: no key of the file lowers that'}"
    raise InputError(
        f"{need.name} needs {format_bytes(_sum(phase))} of memory and {format_bytes(there)} are there:\n"
        + "\n".join(f"  {line}" for line in need.lines(phase)),
        f"{remedy}; {ANY_MEMORY}=1 begins all the same",
    )


def require_free(need: Need | None) -> None:
    """Refuses a need that exceeds the memory that is free and that this process has already; every step asks before it begins.

    Args:
        need: the need of this process and of those that it starts, None if there is no formula.

    Raises:
        InputError: as `require_fit`.
    """
    free = free_bytes()
    if need is not None and free is not None:
        require_fit(need, free + (anonymous_bytes() or 0) + KERNEL_BYTES * need.decided)


def sizes_of(inputs: Mapping[str, Artifact]) -> Sizes | None:
    """Returns the exact sizes that artifacts and their inputs tell; None if the graph is not among them.

    Args:
        inputs: role -> artifact that a step reads. What these were built from is found in their store, as far as it is still there.
    """
    # A model among them was trained on data of its own, whose sizes say nothing.
    found, waiting = dict(inputs), [each for each in inputs.values() if each.stage != "model"]
    while waiting:  # nearest first: a step's own features stand before those that its inputs were built from
        artifact = waiting.pop(0)
        for role, entry in artifact.inputs.items():
            if role not in found:
                source = artifact.neighbour(entry)
                if source is not None:
                    found[role] = source
                    waiting.append(source)
    return known_sizes(found) if "graph" in found else None


def known_sizes(artifacts: Mapping[str, Artifact]) -> Sizes:
    """Returns the sizes that artifacts tell: a graph, a feature table, or both. A graph that is not among them counts no node."""
    graph = artifacts.get("graph")
    names = ("num_nodes", "num_edges", "num_train", "num_valid", "num_test", "num_classes")
    rows, edges = (
        artifacts[role].table_facts("rows") if role in artifacts else None for role in ("features", EDGE_ROLE)
    )
    found: Mapping[str, int] = graph.summary["numbers"] if graph else dict.fromkeys(names, 0)
    counts: dict[str, Any] = {
        name: found.get(f"{name}_links", found[name]) for name in names
    }  # links are seeds, if there are any
    return Sizes(
        **counts,
        num_rows=rows.num_rows if rows else 0,
        width=rows.width if rows else 0,
        row_bytes=rows.row_bytes if rows else 0,
        num_edge_rows=edges.num_rows if edges else 0,
        edge_width=edges.width if edges else 0,
        edge_row_bytes=edges.row_bytes if edges else 0,
        type_widths=tuple(artifacts["features"].summary["numbers"].get("type_columns", ())) if rows else (),
        artifacts=artifacts,
    )
