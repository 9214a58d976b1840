"""What goes with what in a pipeline file: one table, by which trainers/recipe/together.py refuses.

A row is an `Option` that a file may ask for, a column a technique. A cell is "yes" unless the technique states a `Limit`
(trainers/techniques/refusals.py): the option contradicts it or has no effect, always or under a condition; or the technique's sub-table has
no such key.

    found by   a train table alone              the keys of [[train]] and of its sub-table
               a train table and other tables   [sampling], [memory], [partitions] and others
               a user's model, once it is made  `validate` makes it (trainers/models/own_limits.py)

A table of the file that has no effect on one training may have one on another. So it is a mistake only if it has none on all of them, and
else a note.

What a train table asks of other tables and no cell says is a `FileRule` with a sentence of its own (trainers/recipe/file_rules.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from graphmill.assets.building.keys import ConfigError
from graphmill.assets.samples.sets import NEED_SAMPLES, SAMPLES, set_names
from graphmill.assets.sampling.fanouts import by_relation
from graphmill.assets.sources.interface import GraphConfig, TableConfig
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.tasks.labels import CLASSES, Kind
from graphmill.kernels.cuda.driver import num_gpus

Scope = Literal["train", "settings", "file", "code"]
Tables = Mapping[str, Any]
"""Name -> value of each table of the file besides [[train]], None for one with mistakes."""


@dataclass(frozen=True, kw_only=True)
class FileCase:
    """A train table in its file.

    Attributes:
        tables: those that the training reads: of a file with sample sets its own set's (assets/pipeline/sample_sets.py).
        written: keys of the train table that the file has.
        seed: seed of the pipeline, None if it is wrong.
    """

    train: Any
    tables: Tables
    written: Collection[str] = ()
    seed: int | None = None

    @property
    def own(self) -> Any:
        """The technique's own settings."""
        return self.train.own_settings

    @property
    def on_gpu(self) -> bool:
        """Whether it computes on a GPU; "auto" is what this machine has."""
        return self.train.device == "cuda" or (self.train.device == "auto" and num_gpus() > 0)

    @property
    def exact(self) -> bool:
        """Whether its evaluations are exact."""
        return self.train.eval == "exact" or (self.train.eval == "auto" and not self.train.sampled_by)

    @property
    def redrawn(self) -> bool:
        """Whether it draws with other fan-outs than those of `[sampling]`."""
        sampling = self.tables.get("sampling")
        return bool(self.train.fanouts) and sampling is not None and self.train.fanouts != sampling.fanouts

    @cached_property
    def drawn(self) -> Any:
        """`[sampling]` with the fan-outs of the train table, without them if they do not fit it; None if the training does not sample."""
        sampling = self.tables.get("sampling") if self.train.sampled_by else None
        try:
            return replace(sampling, fanouts=self.train.fanouts) if sampling and self.train.fanouts else sampling
        except ConfigError:  # which is reported for itself
            return sampling

    @property
    def graph(self) -> GraphConfig | None:
        """`[graph]`."""
        return self.tables.get("graph")

    @property
    def kind(self) -> Kind:
        """The kind of `[task]`."""
        return self.table("task", "kind") or CLASSES

    @property
    def kind_known(self) -> bool:
        """Whether the kind of `[task]` is not a mistake."""
        return "task" not in self.tables or self.tables["task"] is not None

    @property
    def features(self) -> TableConfig | None:
        """The feature table that is trained on; None if the file has no valid table of that name."""
        features, name = self.tables.get("features"), self.train.feature_table
        if features is None:
            return None if name or "features" in self.tables else TableConfig()
        return features.named.get(name) if name else features.main

    def never(self, attribute: str) -> bool:
        """Tells whether the source certainly does not give an attribute."""
        return self.graph is not None and attribute in self.graph.never

    def table(self, name: str, key: str) -> Any:
        """Returns the value of a key of another table, None if the file has no valid table of that name."""
        return getattr(self.tables.get(name), key, None)

    def missing(self, *names: str) -> str:
        """Returns the headers of those tables that the file lacks, "" if it has all of them."""
        lacking = [name for name in names if name not in self.tables and not (self.sets and name in OF_SETS)]
        return " and ".join(f"[{name}]" for name in lacking)

    @property
    def sets(self) -> tuple[str, ...]:
        """Names of the sample sets of the file."""
        return set_names(self.tables)


OF_SETS = (SAMPLES, *NEED_SAMPLES)
"""Tables that a training has through its sample set, if the file has several."""
Asked = Callable[[FileCase], Any]
"""Tells whether a train table asks for something."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """A row of the table.

    Attributes:
        keys: its keys: of the train table, of the sub-table, or one path of the file with dots.
        scope: what says whether it is asked for: the train table, its sub-table, other tables, or the code of a model.
        asked: whether a train table asks for it.
        used_by: tables of the file that read it, too.
    """

    name: str
    text: str
    keys: tuple[str, ...]
    scope: Scope
    asked: Asked
    used_by: tuple[str, ...] = ()

    def has_key(self, technique: Any) -> bool:
        """Tells whether the tables of a technique have the key at all."""
        kind = technique.settings_type()
        if self.name in OF_NEEDED:
            return self.keys[0].partition(".")[0] in technique.needs
        return self.scope != "settings" or (kind is not None and self.keys[0] in {each.name for each in fields(kind)})


def _key(name: str, text: str, *keys: str, asked: Asked | None = None, scope: Scope = "train") -> Option:
    """Returns the option of keys of [[train]]; without `asked` it is any value but the default."""
    keys = keys or (name,)
    return Option(name=name, text=text, keys=keys, scope=scope, asked=asked or (lambda c: changed(c.train, keys)))


def changed(table: Any, keys: Collection[str]) -> list[str]:
    """Returns the keys of a table that have other values than their defaults."""
    defaults = type(table).__dataclass_fields__
    return [key for key in keys if getattr(table, key) != defaults[key].default]


def _own(name: str, text: str, key: str, asks: Callable[[Any], bool] = bool) -> Option:
    """Returns the option of a key of the sub-table whose value is of some kind."""
    return Option(name=name, text=text, keys=(key,), scope="settings", asked=lambda c: asks(getattr(c.own, key, 0)))


def _drawn(name: str, text: str, key: str, asks: Callable[[Any], bool]) -> Option:
    """Returns the option of a [sampling] of some kind, which only trainings that sample ask for."""
    return Option(
        name=name, text=text, keys=(f"sampling.{key}",), scope="file", asked=lambda c: c.drawn and asks(c.drawn)
    )


def _table(name: str, text: str, path: str, asks: Callable[[Any], bool], *used_by: str) -> Option:
    """Returns the option of a table of the file with values of some kind."""
    table = path.partition(".")[0]

    def asked(case: FileCase) -> bool:
        return case.tables.get(table) is not None and asks(case.tables[table])

    return Option(name=name, text=text, keys=(path,), scope="file", asked=asked, used_by=used_by)


def _is_own(case: FileCase) -> bool:
    return is_reference(case.train.model)


def _any(value: Any) -> bool:
    return True


def _several(value: int) -> bool:
    return value > 1


OPTIONS: Mapping[str, Option] = {
    option.name: option
    for option in (
        _key("cache", '`cache = "none"`'),
        _key("features", "`features`"),
        _key("samplers", "`samplers`"),
        _key("queue", "`queue`"),
        _key("workspace", "`workspace`"),
        _key("link", "`link`"),
        _key("stored", '`samples = "stored"`', "samples"),
        _key("io", "`io` and `io_...`", "io", "io_fallback", "io_depth", "io_window"),
        _key("checkpoint_steps", "`checkpoint_steps`"),
        _key("topology", "`topology` on a GPU", asked=lambda c: c.train.topology != "host" and c.on_gpu),
        _key(
            "booked",
            '`topology = "device"` on the CPU',
            "topology",
            asked=lambda c: c.train.topology == "device" and not c.on_gpu,
        ),
        _key(
            "uva",
            '`topology = "uva"` on the CPU',
            "topology",
            asked=lambda c: c.train.topology == "uva" and not c.on_gpu,
        ),
        _key("accumulate", "`accumulate`"),
        _key("batch_norm", '`norm = "batch"`', "norm", asked=lambda c: c.train.norm == "batch"),
        _key("sampled", '`eval = "sampled"`', "eval", asked=lambda c: c.train.eval == "sampled"),
        _key("own_fanouts", "`fanouts` in `[[train]]`", "fanouts", asked=lambda c: c.train.fanouts),
        _key("relations", '`model = "rgcn"`, "rgat"', "model", asked=lambda c: c.train.reads_relations),
        _key("edge_weight", "`edge_weight = true`"),
        _key("edge_features", "`edge_features = true`"),
        _key("node_rows", '`embedding = "node"`', "embedding"),
        _key(
            "row_files",
            '`embedding_rows = "mapped"`',
            "embedding_rows",
            asked=lambda c: c.train.embedding_rows == "mapped",
        ),
        _key("pyg", '`blocks = "pyg"`', "blocks", asked=lambda c: c.train.blocks == "pyg"),
        _key("subgraph", '`blocks = "subgraph"`', "blocks", asked=lambda c: c.train.blocks == "subgraph"),
        _key("layers", "own model, a list of layers", "model", asked=_is_own, scope="code"),
        _key("module", "own module over blocks of DGL", "model", asked=_is_own, scope="code"),
        _key("graph_module", "own module `forward(x, edge_index)`", "model", asked=_is_own, scope="code"),
        _key("buffers", "own model with buffers that training changes", "model", asked=_is_own, scope="code"),
        _own("packed", '`rows = "packed"`', "rows", lambda value: value == "packed"),
        _own("probe", "`probe`", "probe"),
        _own("lookahead", "`lookahead`", "lookahead"),
        _own("unfused", '`scheme = "unfused"`', "scheme", lambda value: value == "unfused"),
        _own("vanilla", '`scheme = "vanilla"`', "scheme", lambda value: value == "vanilla"),
        _own("peer", '`exchange = "peer"`', "exchange", lambda value: value == "peer"),
        _own("trainers", "several `trainers`", "trainers", _several),
        _own("devices", "several `devices`", "devices", _several),
        _own("ranks", "several `ranks`", "ranks", _several),
        _own("sharing", '`sharing = "time"`', "sharing", lambda value: value == "time"),
        _own("staleness", "`staleness`", "staleness"),
        _own("presample", "`presample`", "presample"),
        _table("sampling", "`[sampling]`", "sampling", _any, "samples", "cache_plan"),
        _drawn("weighted", '`method = "weighted"`', "method", lambda drawn: drawn.method == "weighted"),
        _drawn("walks", '`method = "random_walk"`', "method", lambda drawn: drawn.method == "random_walk"),
        _drawn("own_sampling", "sampling of your own", "method", lambda drawn: is_reference(drawn.method)),
        Option(
            name="by_relation",
            text="`fanouts` per relation",
            keys=("sampling.fanouts",),
            scope="file",
            asked=lambda c: c.drawn and by_relation(c.train.fanouts or c.drawn.fanouts),
        ),
        _drawn("before", '`before = "seed"`', "before", lambda drawn: drawn.before is not None),
        _drawn("sampling_seed", "`sampling_seed`", "sampling_seed", lambda drawn: drawn.sampling_seed is not None),
        _drawn("schedule", "`schedule` of fan-outs", "schedule", lambda drawn: bool(drawn.schedule)),
        _table("hotness", "`[hotness]`", "hotness", _any, "cache_plan"),
        _table("memory", "`[memory]`", "memory", _any, "cache_plan"),
        _table("device_cache", "`[memory] device`", "memory.device", lambda memory: memory.device != "auto"),
        _table("part_plan", '`[samples] plan = "parts"`', "samples.plan", lambda samples: samples.plan == "parts"),
        _table("self_term", "`[chunks] self_term = false`", "chunks.self_term", lambda chunks: not chunks.self_term),
    )
}
OF_NEEDED = ("self_term",)
"""Options of tables that only some techniques read; to others they are nothing."""
FILLED = ("own_fanouts",)
"""Options whose keys are filled in from other tables; they are asked for where the file has the key."""


class Condition(NamedTuple):
    """A condition under which a limit holds."""

    # Words behind the name of the trainer.
    words: str
    # Whether it holds for a train table.
    holds: Asked
    # Path below `[[train]]` of the key that makes it hold, "" if there is none; * stands for the sub-table.
    key: str = ""
    # Whether it depends on other tables.
    of_file: bool = False


def _own_is(key: str, value: str) -> Condition:
    """Returns the condition that a key of the sub-table has a value."""
    return Condition(f'with {key} = "{value}"', lambda c: getattr(c.own, key, "") == value, f"*.{key}")


CONDITIONS: Mapping[str, Condition] = {
    "gpu": Condition("on a GPU", lambda c: c.on_gpu, "device"),
    "stored": Condition('with samples = "stored"', lambda c: c.train.samples != "online", "samples"),
    "online": Condition('with samples = "online"', lambda c: c.train.samples == "online", "samples"),
    "on_device": Condition(
        "with its topology on the device", lambda c: c.train.topology != "host" and c.on_gpu, "topology"
    ),
    "exact": Condition("with an exact evaluation", lambda c: c.exact, "eval"),
    "packed": _own_is("rows", "packed"),
    "presample": Condition("with presample", lambda c: getattr(c.own, "presample", 0) > 0, "*.presample"),
    "unpacked": Condition('with rows = "table"', lambda c: c.own.rows != "packed", "*.rows"),
    "exchanged": _own_is("rows", "exchange"),
    "packed_exact": Condition(
        'with rows = "packed" and an exact evaluation', lambda c: c.own.rows == "packed" and c.exact, "*.rows"
    ),
    "chunks": Condition("in chunks", lambda c: "chunks" in c.train.needs),
    "uncut": _own_is("mode", "device"),
    "stored_other": Condition(
        'with samples = "stored" beside others in [sampling]',
        lambda c: c.train.samples != "online" and c.redrawn,
        "samples",
        of_file=True,
    ),
    "other": Condition("beside others in [sampling]", lambda c: c.redrawn, of_file=True),
    "shuffled": Condition(
        'with [samples] plan = "shuffled"', lambda c: c.table("samples", "plan") == "shuffled", of_file=True
    ),
    "parts": Condition("with several parts", lambda c: (c.table("partitions", "parts") or 1) > 1, of_file=True),
    "unfused": _own_is("scheme", "unfused"),
    "vanilla": _own_is("scheme", "vanilla"),
    "several": Condition("with several ranks", lambda c: c.own.ranks > 1, "*.ranks"),
}
ALWAYS = Condition("", lambda c: True)


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A cell of the table of options that is more than "yes".

    Attributes:
        why: end of the sentence that begins with the option and the trainer.
        when: name of a condition under which it holds, "" for always.
        useless: whether the option has no effect, instead of contradicting the technique.
        remedy: what to do about it; {own} in it stands for the header of the sub-table with the technique's own keys.
    """

    option: str
    why: str
    when: str = ""
    useless: bool = False
    remedy: str = "remove the key"


def each(
    options: str, why: str, *, whens: str = "", useless: bool = False, remedy: str = "remove the key"
) -> tuple[Limit, ...]:
    """Returns a limit for each of several options under each of several conditions; both are names with blanks between them."""
    return tuple(
        Limit(option=option, why=why, when=when, useless=useless, remedy=remedy)
        for option in options.split()
        for when in whens.split() or [""]
    )
