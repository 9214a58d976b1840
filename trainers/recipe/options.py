"""What goes with what in a pipeline file: one table, by which trainers/recipe/together.py refuses.

A row is an `Option` that a file may ask for, a column a technique. A cell is "yes" unless the technique states a `Limit`
(trainers/techniques/limits.py): the option contradicts it or has no effect, always or under a condition; or the technique's sub-table has
no such key.

    found by   a train table alone              the keys of [[train]] and of its sub-table
               a train table and other tables   [sampling], [memory], [partitions] and others
               a user's model, once it is made  `validate` makes it (trainers/models/own_limits.py)

A table of the file that has no effect on one training may have one on another. So it is a mistake only if it has none on all of them, and
else a note.

What a train table asks of other tables and no cell says is a `Rule` with a sentence of its own (trainers/recipe/file_rules.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from graphmill.assets.sampling.fanouts import by_relation
from graphmill.assets.storage.user_code import is_reference
from graphmill.kernels.cuda.driver import num_gpus

Scope = Literal["train", "settings", "file", "code"]
Tables = Mapping[str, Any]
"""Name -> value of each table of the file besides [[train]], None for one with mistakes."""
Asked = Callable[[Any, Tables], bool]
"""Tells whether a train table asks for something, with the other tables."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """A row of the table.

    Attributes:
        name: its name in limits.
        text: as documentation writes it.
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
    return Option(name=name, text=text, keys=keys, scope=scope, asked=asked or _changed(*keys))


def _changed(*keys: str) -> Asked:
    def asked(table: Any, tables: Tables) -> bool:
        defaults = type(table).__dataclass_fields__
        return any(getattr(table, key) != defaults[key].default for key in keys)

    return asked


def _own(name: str, text: str, key: str, asks: Callable[[Any], bool] = bool) -> Option:
    """Returns the option of a key of the sub-table whose value is of some kind."""

    def asked(table: Any, tables: Tables) -> bool:
        return hasattr(table.settings, key) and asks(getattr(table.settings, key))

    return Option(name=name, text=text, keys=(key,), scope="settings", asked=asked)


def _drawn(name: str, text: str, key: str, asks: Callable[[Any], bool]) -> Option:
    """Returns the option of a [sampling] of some kind, which only trainings that sample ask for."""

    def asked(table: Any, tables: Tables) -> bool:
        return bool(table.sampled_by and tables.get("sampling") and asks(tables["sampling"]))

    return Option(name=name, text=text, keys=(f"sampling.{key}",), scope="file", asked=asked)


def _table(name: str, text: str, path: str, asks: Callable[[Any], bool], *used_by: str) -> Option:
    """Returns the option of a table of the file with values of some kind."""

    def asked(table: Any, tables: Tables) -> bool:
        value = tables.get(path.partition(".")[0])
        return value is not None and asks(value)

    return Option(name=name, text=text, keys=(path,), scope="file", asked=asked, used_by=used_by)


def on_gpu(table: Any) -> bool:
    """Tells whether a train table computes on a GPU; "auto" is what this machine has."""
    return table.device == "cuda" or (table.device == "auto" and num_gpus() > 0)


def _is_own(table: Any, tables: Tables) -> bool:
    return is_reference(table.model)


def _by_relation(table: Any, tables: Tables) -> bool:
    return by_relation(table.fanouts or tables["sampling"].fanouts)


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
        _key("topology", "`topology` on a GPU", asked=lambda t, _: t.topology != "host" and on_gpu(t)),
        _key(
            "booked",
            '`topology = "device"` on the CPU',
            "topology",
            asked=lambda t, _: t.topology == "device" and not on_gpu(t),
        ),
        _key(
            "uva", '`topology = "uva"` on the CPU', "topology", asked=lambda t, _: t.topology == "uva" and not on_gpu(t)
        ),
        _key("accumulate", "`accumulate`"),
        _key("batch_norm", '`norm = "batch"`', "norm", asked=lambda t, _: t.norm == "batch"),
        _key("sampled", '`eval = "sampled"`', "eval", asked=lambda t, _: t.eval == "sampled"),
        _key("own_fanouts", "`fanouts` in `[[train]]`", "fanouts", asked=lambda t, _: bool(t.fanouts)),
        _key("relations", '`model = "rgcn"`, "rgat"', "model", asked=lambda t, _: t.reads_relations),
        _key("edge_weight", "`edge_weight = true`"),
        _key("node_rows", '`embedding = "node"`', "embedding"),
        _key("pyg", '`blocks = "pyg"`', "blocks"),
        _key("layers", "own model, a list of layers", "model", asked=_is_own, scope="code"),
        _key("module", "own module over whole blocks", "model", asked=_is_own, scope="code"),
        _key("buffers", "own model with buffers", "model", asked=_is_own, scope="code"),
        _own("packed", '`rows = "packed"`', "rows", lambda value: value == "packed"),
        _own("probe", "`probe`", "probe"),
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
            asked=lambda t, tables: bool(tables.get("sampling")) and t.sampled_by != "" and _by_relation(t, tables),
        ),
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


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition under which a limit holds.

    Attributes:
        words: words behind the name of the trainer.
        holds: whether it holds for a train table.
        key: path below `[[train]]` of the key that makes it hold, "" if there is none; * stands for the sub-table.
        of_file: whether it depends on other tables.
    """

    words: str
    holds: Asked
    key: str = ""
    of_file: bool = False


def _is(key: str, value: str) -> Condition:
    """Returns the condition that a key of [[train]] has a value."""
    return Condition(words=f'with {key} = "{value}"', key=key, holds=lambda t, _: getattr(t, key) == value)


def _own_is(key: str, value: str) -> Condition:
    """Returns the condition that a key of the sub-table has a value."""
    return Condition(
        words=f'with {key} = "{value}"', key=f"*.{key}", holds=lambda t, _: getattr(t.settings, key, "") == value
    )


def _is_exact(table: Any, tables: Tables) -> bool:
    return table.eval == "exact" or (table.eval == "auto" and not table.sampled_by)


def _draws_otherwise(table: Any, tables: Tables) -> bool:
    return bool(table.fanouts) and tables.get("sampling") is not None and table.fanouts != tables["sampling"].fanouts


def _is_shuffled(table: Any, tables: Tables) -> bool:
    return tables.get("samples") is not None and tables["samples"].plan == "shuffled"


def _is_divided(table: Any, tables: Tables) -> bool:
    return tables.get("partitions") is not None and tables["partitions"].parts > 1


CONDITIONS: Mapping[str, Condition] = {
    "gpu": Condition(words="on a GPU", key="device", holds=lambda t, _: on_gpu(t)),
    "stored": _is("samples", "stored"),
    "online": _is("samples", "online"),
    "on_device": Condition(
        words="with its topology on the device",
        key="topology",
        holds=lambda t, _: t.topology != "host" and on_gpu(t),
    ),
    "exact": Condition(words="with an exact evaluation", key="eval", holds=_is_exact),
    "packed": _own_is("rows", "packed"),
    "presample": Condition(
        words="with presample", key="*.presample", holds=lambda t, _: getattr(t.settings, "presample", 0) > 0
    ),
    "unpacked": Condition(
        words='with rows = "table"', key="*.rows", holds=lambda t, _: t.own_settings.rows != "packed"
    ),
    "exchanged": _own_is("rows", "exchange"),
    "unpeered": Condition(
        words='with rows of shards and without exchange = "peer"',
        key="*.exchange",
        holds=lambda t, _: t.own_settings.rows != "packed" and getattr(t.settings, "exchange", "") != "peer",
    ),
    "packed_exact": Condition(
        words='with rows = "packed" and an exact evaluation',
        key="*.rows",
        holds=lambda t, tables: t.own_settings.rows == "packed" and _is_exact(t, tables),
    ),
    "chunks": Condition(words="in chunks", holds=lambda t, _: "chunks" in t.needs),
    "uncut": _own_is("mode", "device"),
    "stored_other": Condition(
        words='with samples = "stored" beside others in [sampling]',
        key="samples",
        holds=lambda t, tables: t.samples == "stored" and _draws_otherwise(t, tables),
        of_file=True,
    ),
    "other": Condition(words="beside others in [sampling]", holds=_draws_otherwise, of_file=True),
    "shuffled": Condition(words='with [samples] plan = "shuffled"', holds=_is_shuffled, of_file=True),
    "parts": Condition(words="with several parts", holds=_is_divided, of_file=True),
    "unfused": _own_is("scheme", "unfused"),
    "vanilla": _own_is("scheme", "vanilla"),
}


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A cell of the table of options that is more than "yes".

    Attributes:
        option: name of the option.
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
