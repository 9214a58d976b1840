"""Generated users and events with times: a user's label tells of its last five events before a time, and later events tell the label.

Items have a taste each, which their features show; users' features show nothing. Event e, at the time e, joins a random user with an
item. A user is asked at a time of its own in the middle third. Its answer is the most frequent taste among its last five events before
that time, of equally frequent ones the smallest, and with probability `flip` any taste in its place. Earlier events have random tastes,
later ones the taste of the answer with probability `p_in`.

So a model that sees a user as of its time predicts the answer with probability

    1 - flip + flip / classes

at best, published as `best_accuracy`. One that sees all events reads the answer from later ones, and scores above that: a leak. The graph
says it where times are not asked for (`before` of [sampling]).

Peak memory: 60 bytes per event and 30 per node, and the sort of the edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphmill.assets.building.keys import KeyProblem, within
from graphmill.assets.costs.needs import Term
from graphmill.assets.sources.edge_marks import EdgeMarks
from graphmill.assets.sources.generated.generators import GeneratedConfig, GeneratedSource, with_hidden
from graphmill.assets.sources.generated.typed_citation import below, chance
from graphmill.assets.sources.interface import FEATURES_TOO, RawGraph
from graphmill.assets.sources.survey import Survey
from graphmill.assets.sources.task_table import LinkSplit
from graphmill.kernels.rng import absorb_ids, draws, key
from graphmill.kernels.types import Array, Stream

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress

EVENTS, USERS = 21, 22
"""The words after the stream of generators for events and for users; the other generators have others."""
ITEMS = 0.2
"""Share of the items among the nodes; the rest are users."""
LAST = 5
"""Events that decide an answer."""
EVENT_BYTES = 60


@dataclass(frozen=True, kw_only=True)
class EventsConfig(GeneratedConfig):
    """`[graph]` with `source = "events"`: users, items, and events with times."""

    # names this kind of source
    source: str = field(default="events", metadata=FEATURES_TOO)
    # number of users and items; draws have 31 bits
    nodes: int = field(metadata=within(1, 1 << 31, **FEATURES_TOO))
    # probability that an event after a user's time has the taste of the answer
    p_in: float = field(default=0.9, metadata=within(0, 1))
    # probability that an answer is drawn anew, whatever the events are
    flip: float = field(default=0.2, metadata=within(0, 1))

    tasks = ("classes",)

    def problems(self) -> Iterator[KeyProblem]:
        """Yields too few nodes for an item of each taste."""
        yield from super().problems()
        if self.num_items < self.classes:
            text = f"nodes = {self.nodes} makes {self.num_items} items for classes = {self.classes} tastes"
            yield KeyProblem("nodes classes", f"{text}: give at least {round(self.classes / ITEMS) + 1} nodes")

    @property
    def link_splits(self) -> tuple[LinkSplit, ...]:
        """The splits of events: drawn, or by time."""
        return ("random", "time")

    @property
    def node_timed(self) -> bool:
        """Whether nodes may have times: users have."""
        return True

    @property
    def untold_times(self) -> bool:
        """Whether [sampling] does not ask for the times that users have."""
        return not self.times and self.links is None

    @property
    def num_items(self) -> int:
        """Number of items, whose ids follow those of the users."""
        return round(self.nodes * ITEMS)

    @property
    def sorts_a_file(self) -> bool:
        """Whether events are drawn to a file: they never are, since answers depend on all of them."""
        return False

    @property
    def best_accuracy(self) -> float:
        """The accuracy of the best prediction from events before a user's time."""
        return 1 - self.flip + self.flip / self.classes

    def draw_labels(self, threads: int) -> Array:
        """Returns i32[N], the tastes that features show: of items their own, of users random ones."""
        users = self.nodes - self.num_items
        shown = below(draws(self._keys(USERS, users, threads), 3), self.classes)
        return np.concatenate([shown, np.arange(self.num_items) % self.classes]).astype(np.int32)

    def _keys(self, word: int, count: int, threads: int) -> Array:
        return absorb_ids(key(self.seed, Stream.GENERATORS, word), np.arange(count), threads=threads)

    def draw_edges(self, threads: int, lo: int, hi: int) -> tuple[Array, Array]:
        """Returns the items and the users, i64[hi - lo] each, of events lo to hi - 1."""
        found = draw_events(self, threads)
        return found.item[lo:hi], found.user[lo:hi]

    def drawn(self, folder: Path, threads: int) -> EventsSource:
        """Returns the graph, which is drawn when it is asked for."""
        return EventsSource(self, threads, folder)

    def survey(self) -> Survey:
        """Describes the graph that would be made."""
        found, term = super().survey(), Term("events", EVENT_BYTES * self.edges, "[graph] edges")
        phases = tuple((*phase, term) for phase in found.phases)
        contents = [f"{self.nodes - self.num_items:,} users, {self.num_items:,} items, {self.edges:,} events"]
        memory = found.memory_bytes + EVENT_BYTES * self.edges
        return replace(found, contents=contents, phases=phases, memory_bytes=memory)


@dataclass(frozen=True, kw_only=True)
class DrawnEvents:
    """Drawn events in the order of their times 0 to n - 1, and users.

    Attributes:
        user, item: i64[n] global ids.
        asked: f64[users], the time of each user.
        answer: i32[users].
    """

    user: Array
    item: Array
    asked: Array
    answer: Array


def draw_events(config: EventsConfig, threads: int) -> DrawnEvents:
    """Draws the events and the answers of a configuration."""
    count, classes, users = config.edges, config.classes, config.nodes - config.num_items
    events, asks = config._keys(EVENTS, count, threads), config._keys(USERS, users, threads)
    user, taste = below(draws(events, 0), users), below(draws(events, 1), classes)
    asked = count // 3 + below(draws(asks, 0), max(1, count // 3))
    answer = answers(user, taste, asked, classes)
    answer = np.where(chance(draws(asks, 1), config.flip), below(draws(asks, 2), classes), answer)
    told = (np.arange(count) >= asked[user]) & chance(draws(events, 2), config.p_in)
    taste = np.where(told, answer[user], taste)
    of_taste = (config.num_items - 1 - taste) // classes + 1
    item = users + taste + classes * below(draws(events, 3), of_taste)
    return DrawnEvents(user=user, item=item, asked=asked.astype(np.float64), answer=answer.astype(np.int32))


def answers(user: Array, taste: Array, asked: Array, classes: int) -> Array:
    """Returns i64[users], the most frequent taste among the last five events of each user before its time; 0 without events.

    Args:
        user, taste: i64[n], of the events in the order of their times 0 to n - 1.
        asked: i64[users], the times of the users.
    """
    order = np.argsort(user, kind="stable")  # each user's events in the order of time
    names = user[order] * len(user) + order
    first = np.searchsorted(names, np.arange(len(asked)) * len(user))
    last = np.searchsorted(names, np.arange(len(asked)) * len(user) + asked)
    counts = np.zeros((len(asked), classes), np.int64)
    for back in range(1, LAST + 1):
        has = np.flatnonzero(last - back >= first)
        counts[has, taste[order[last[has] - back]]] += 1
    return counts.argmax(axis=1)


class EventsSource(GeneratedSource):
    """Events that are drawn when they are asked for; the rows of nodes are those of the tastes that they show."""

    def graph(self, progress: Progress) -> RawGraph:
        """Draws events and answers."""
        config = self.config
        assert isinstance(config, EventsConfig)
        progress.start("generate events", config.edges, "edges")
        found = draw_events(config, self.threads)
        progress.advance(config.edges)
        progress.done()
        items = np.full(config.num_items, -1, np.int32)
        labels = with_hidden(config, np.concatenate([found.answer, items]))
        labels[len(found.answer) :] = -1
        return RawGraph(
            num_nodes=config.nodes,
            src=found.item,
            dst=found.user,
            labels=labels,
            class_names=[str(number) for number in range(config.classes)],
            numbers={"best_accuracy": config.best_accuracy},
            edge_marks=EdgeMarks(
                values=np.arange(config.edges, dtype=np.float64), place=f"{config.source}: event {{}}".format
            ),
            node_times=np.concatenate([found.asked, np.full(config.num_items, np.nan)]),
        )
