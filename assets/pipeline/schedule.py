"""The tables `[schedule]` and `[run]`: when a pipeline is brought up to date by itself, whom a failure is reported to, and where it runs.

    [schedule]
    cron = "0 3 * * *"               # minute, hour, day of the month, month, day of the week
    timezone = "Europe/Berlin"
    job = "all"                      # preprocess | train | all
    enabled = true
    refresh = true                   # and whenever the data, the file or the store change

    [run]
    on = "auto"

Nothing of them enters a version. The daemon that `graphmill ui` starts reads `[schedule]`; a machine that only trains does not need it and
lacks Dagster, so the rules of cron are checked here. Dagster accepts every expression that is accepted here; a test compares both on
random expressions.
"""

import re
import zoneinfo
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.assets.cluster.address import HOW as ADDRESSES
from graphmill.assets.cluster.address import address_problem
from graphmill.assets.pipeline.schema import Problem, Tables
from graphmill.kernels import environment
from graphmill.kernels.errors import did_you_mean

SCHEDULE, RUN = "schedule", "run"
PRIORITIES = range(-1000, 1001)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("day of the week", 0, 7, WEEKDAYS),
)
"""Name, smallest and largest value, and words for the values, of each field of a cron expression."""
LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
SHORT_FORMS = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")
ITEM = re.compile(r"(?:\*|([a-z]+|\d{1,2})(?:-([a-z]+|\d{1,2}))?)(?:/(\d{1,2}))?", re.ASCII)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HOW = 'write five fields, minute hour day month weekday, such as "0 3 * * *" for every day at three, or @hourly, @daily, @weekly'


@dataclass(frozen=True, kw_only=True)
class ScheduleTable(Checked):
    """The times and events at which a pipeline runs by itself."""

    # Times: minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly. "" = at no set time.
    cron: str = ""
    # Time zone of `cron`, such as Europe/Berlin.
    timezone: str = "UTC"
    # The part that is brought up to date: preprocess = the data, train = the models, all = both.
    job: Literal["preprocess", "train", "all"] = "all"
    # false: it stands in the web UI, switched off.
    enabled: bool = True
    # Also whenever the data, the pipeline file or the store changed; the daemon looks once per minute.
    refresh: bool = False
    # Waiting runs of the highest priority start first; a run that a person starts has 0.
    priority: int = field(default=0, metadata=within(PRIORITIES[0], PRIORITIES[-1]))
    # Program and arguments that run when a run of the pipeline failed.
    on_failure: tuple[str, ...] = ()
    # Name of an environment variable that holds the address that gets reports of failed runs; addresses of webhooks are secrets.
    webhook: str = ""

    remedy = ""

    def problems(self) -> Iterator[KeyProblem]:
        """Yields the problems of times, time zone, programs and variable."""
        for key, text in (("cron", _wrong_cron(self.cron)), ("timezone", _wrong_timezone(self.timezone))):
            if text:
                yield KeyProblem(key, text)
        if not self.cron and not self.refresh:
            yield KeyProblem("", "it says neither cron nor refresh = true, so nothing would ever happen")
        if self.on_failure and not self.on_failure[0].strip():
            yield KeyProblem("on_failure", "on_failure names no program")
        if any("\0" in word for word in self.on_failure):
            yield KeyProblem("on_failure", "on_failure has a NUL character")
        if self.webhook and not VARIABLE.fullmatch(self.webhook):
            why = "an address of a webhook is a secret and stands in none of these files"
            yield KeyProblem("webhook", f"webhook is not the name of an environment variable: {why}")


@dataclass(frozen=True, kw_only=True)
class RunTable(Checked):
    """The machines on which a pipeline runs."""

    # The Ray cluster that builds parts and trains: "auto", "local:N", "HOST:PORT" or "ray://HOST:PORT"; "" = this machine alone.
    on: str = ""

    remedy = ""

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a text that names no cluster."""
        if self.on and (text := address_problem(self.on)):
            yield KeyProblem("on", f"on: {text}: {ADDRESSES}")


def parse_schedule(raw: Mapping[str, Any], tables: Tables) -> tuple[ScheduleTable | None, list[Problem]]:
    """Returns the checked table, None if the file has none or a wrong one, and all mistakes in it."""
    if SCHEDULE not in raw:
        return None, []
    table, problems = tables.parse(ScheduleTable, raw[SCHEDULE], (SCHEDULE,))
    if table is not None and table.job == "train" and not raw.get("train"):
        problems.append(tables.problem((SCHEDULE, "job"), 'job = "train", but the file has no [[train]] table'))
    if table is not None and tables.files and (text := _wrong_address(table.webhook)):
        problems.append(tables.problem((SCHEDULE, "webhook"), text))
    return (None if problems else table), problems


def parse_run(raw: Mapping[str, Any], tables: Tables) -> tuple[RunTable | None, list[Problem]]:
    """Returns the checked table `[run]`; arguments and result are those of `parse_schedule`."""
    return (None, []) if RUN not in raw else tables.parse(RunTable, raw[RUN], (RUN,))


def _wrong_address(variable: str) -> str:
    """Returns the problem of the variable of a webhook, "" if there is none. Its value, a secret, is never shown."""
    if not variable or environment.read_named(variable).startswith(("http://", "https://")):
        return ""
    found = "holds no http address" if environment.read_named(variable) else "is not set"
    how = f"export {variable}=https://..., here and before `graphmill ui` starts, or remove webhook"
    return f'webhook = "{variable}": the environment variable {variable} {found}, so no failure would be told: {how}'


def _wrong_timezone(name: str) -> str:
    """Returns the problem of a time zone's name, "" if there is none or this machine knows no time zones."""
    known = zoneinfo.available_timezones()
    if name in known or not known:
        return ""
    return f"timezone = {name!r} is no time zone{did_you_mean(name, known)}; write for example UTC"


def _wrong_cron(cron: str) -> str:
    """Returns the problem of a cron expression, "" if there is none or the expression is empty."""
    if not cron or cron in SHORT_FORMS:
        return ""
    if cron.startswith("@"):
        return f"cron = {cron!r} is not one of {', '.join(SHORT_FORMS)}"
    words = cron.split()
    if len(words) != len(FIELDS):
        return f"cron = {cron!r} has {len(words)} fields; {HOW}"
    values: list[set[int]] = []
    for word, (name, low, high, names) in zip(words, FIELDS, strict=True):
        try:
            values.append({number for item in word.lower().split(",") for number in _numbers(item, low, high, names)})
        except ValueError as error:
            return f"cron = {cron!r}: {word!r} is no {name}: {error}; {HOW}"
    _, _, days, months, _ = values
    if all(min(days) > LONGEST_MONTH[month - 1] for month in months):
        # Other programs would take the weekday alone; Dagster refuses some of these expressions, and finds no next time of the others.
        weekday = "" if words[4] == "*" else "; for the weekday alone write * as day of the month"
        return f"cron = {cron!r} never comes: no such month has a day {min(days)}{weekday}"
    return ""


def _numbers(item: str, low: int, high: int, names: tuple[str, ...]) -> Iterator[int]:
    """Returns the values of one item of a field: `*`, a number, a range, each with or without a step.

    Raises:
        ValueError: the item is wrong; the text says why.
    """
    match = ITEM.fullmatch(item)
    if match is None:
        raise ValueError(f"{item!r} is neither *, a number nor a range")
    first, last, step = match.groups()
    start = low if first is None else _number(first, low, high, names)
    end = high if first is None else start if last is None else _number(last, low, high, names)
    if first is not None and last is None and step is not None:
        raise ValueError(f"a step needs a range: {first}-{high}/{step} or */{step}")
    if end < start:
        raise ValueError(f"{item} ends before it begins")
    if step is not None and not 0 < int(step) <= high:
        raise ValueError(f"the step {step} is not between 1 and {high}")
    return iter(range(start, end + 1, int(step or 1)))


def _number(word: str, low: int, high: int, names: tuple[str, ...]) -> int:
    if word in names:
        return names.index(word) + low
    if not word.isdecimal() or not low <= int(word) <= high:
        raise ValueError(f"{word} is not between {low} and {high}")
    return int(word)
