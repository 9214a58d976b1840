"""What the build of an artifact or a training will take of the machine, added up before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from assets.sizes import format_bytes
from kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Term:
    """One summand of a need."""

    # What takes the bytes, in a few words: "rows in the host cache".
    what: str
    num_bytes: int
    # The key of the pipeline file that lowers it, "[memory] host"; "" if none does.
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Need:
    """The need of one artifact or training.

    Attributes:
        name: the step's name, as in the pipeline's plan.
        memory: summands of the peak of anonymous memory, over all processes of the step; pages of mapped files are not in it.
        stored: bytes that stay in the store.
        scratch: bytes of disk that are free again afterwards.
        at_most: whether a size that is not known yet was counted at its bound, so that the step may need less.
    """

    name: str
    memory: tuple[Term, ...]
    stored: int = 0
    scratch: int = 0
    at_most: bool = False

    @property
    def memory_bytes(self) -> int:
        """The sum of `memory`."""
        return sum(term.num_bytes for term in self.memory)

    def lines(self) -> Iterator[str]:
        """Yields one line per summand of the memory, largest first."""
        for term in sorted(self.memory, key=lambda term: -term.num_bytes):
            if term.num_bytes:
                lowers = f"   ({term.key} lowers it)" if term.key else ""
                yield f"{format_bytes(term.num_bytes):>9}  {term.what}{lowers}"


def require_fit(need: Need, there: int | None) -> None:
    """Refuses a need that exceeds the memory that is left for this process, before anything is allocated or opened.

    Args:
        need: the need; one that counts bounds (`at_most`) is never refused, because less may do.
        there: bytes of memory, None if the system does not say.

    Raises:
        InputError: the sum is larger; the error lists the summands, and the keys that lower them.
    """
    if there is None or need.at_most or need.memory_bytes <= there:
        return
    keys = dict.fromkeys(term.key for term in sorted(need.memory, key=lambda term: -term.num_bytes) if term.key)
    remedy = f"lower {' or '.join(keys)}" if keys else "use a machine, or a memory limit, with more"
    raise InputError(
        f"{need.name} needs {format_bytes(need.memory_bytes)} of memory and {format_bytes(there)} are there:\n"
        + "\n".join(f"  {line}" for line in need.lines()),
        remedy,
    )
