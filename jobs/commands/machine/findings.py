"""The result of one probe of `graphmill doctor`."""

from __future__ import annotations

from dataclasses import dataclass

OK, LACKS, NOTE = "ok", "missing", "note"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of a probe.

    Attributes:
        topic, name: the thing that was probed.
        state: "ok", "missing", or "note" for neither good nor bad.
        found: the result in words.
        remedy: how to get the missing thing; "" if nothing is missing.
        needed: True if nothing can be trained without it.
    """

    topic: str
    name: str
    state: str
    found: str
    remedy: str = ""
    needed: bool = False


def finding(
    topic: str, name: str, fine: bool, found: str, remedy: str = "", *, needed: bool = False, otherwise: str = LACKS
) -> Finding:
    """Returns the finding of a probe: ok and without its remedy if all is fine, else `otherwise`."""
    state, remedy = (OK, "") if fine else (otherwise, remedy)
    return Finding(topic=topic, name=name, state=state, found=found, remedy=remedy, needed=needed)
