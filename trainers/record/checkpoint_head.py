"""The header of a checkpoint, read without torch and without its tensors: what a run would go on from.

The text in it has a digest of its own, since the digest of the whole file is compared only when the tensors are read as well. With an
object store (assets/storage/remote/checkpoints.py) the checkpoint of another machine counts, too. Both are read by the same functions.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import xxhash

from graphmill.assets.storage.files.schema import (
    Fields,
    boolean,
    in_format,
    listed,
    mapped,
    maybe,
    name,
    number,
    one_of,
    version,
    whole,
)
from graphmill.assets.storage.names.home import store_url
from graphmill.assets.storage.remote.checkpoints import fetch_checkpoint, stored_head
from graphmill.kernels.errors import InputError
from graphmill.trainers.record.ledger import KINDS, LINKS

FORMAT = 3
DIGEST_DIGITS = 32
_DIGEST = b'"digest":"'
"""What stands before the digest in the header; inside the other texts of the header a quotation mark is escaped."""


def _measured(value: Any, where: str) -> None:
    """Requires a number, which may be NaN or infinite: the loss of a run that diverged."""
    if type(value) is not float or isfinite(value):
        number()(value, where)


LEDGER = Fields(
    optional={
        "moves": listed(
            Fields(
                {"link": one_of(*LINKS), "kind": one_of(*KINDS), "phase": one_of("forward", "backward")}
                | dict.fromkeys(("layer", "requests", "asked_bytes", "moved_bytes"), whole())
            )
        ),
        "counts": listed(Fields({"name": name, "layer": whole(), "n": whole()})),
    }
)
head_schema = Fields(
    {
        "format": in_format(FORMAT),
        "version": version,
        "ledger": LEDGER,
        "state": Fields(
            {"epoch": whole(), "position": whole()},
            {
                "loss_sum": _measured,
                "history": listed(mapped(_measured)),
                "best_score": maybe(_measured),
                "best_epoch": whole(),
                "waited": whole(),
                "done": boolean,
                "moved": LEDGER,
            },
        ),
    },
    {
        "threads": listed(whole(least=1)),
        "evaluation": one_of("exact", "sampled"),
        "products": one_of("onednn", "blas"),
        "rows": name,
    },
)
"""The text in the header."""

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, RecursionError)
"""Errors of a file that is missing, or has no such header; the rest of a file is compared when it is read whole."""


@dataclass(frozen=True, order=True)
class Waiting:
    """The position of a run that did not end, by epochs and batches of the next one that are done; the further one is the greater."""

    epoch: int
    position: int

    @property
    def place(self) -> str:
        """The position in words."""
        return f"epoch {self.epoch}" + (f" and {self.position} batches" if self.position else "")

    def __str__(self) -> str:
        return f"a checkpoint of {self.place} waits for --resume"


def checkpoint_path(folder: Path, version: str) -> Path:
    """Returns the path of the checkpoint of a model version."""
    return folder / f"{version}.safetensors"


def scores_path(checkpoint: Path, rank: int, world: int) -> Path:
    """Returns the path of the rows that an interrupted computation of the final scores leaves beside a checkpoint, of one rank."""
    return checkpoint.with_name(f"{checkpoint.name}.scores" + (f"-{rank}-of-{world}" if world > 1 else ""))


def head_digest(text: str) -> str:
    """Returns the digest of the text of a checkpoint, 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(text.encode())


def parse_head(text: bytes) -> dict[str, Any]:
    """Returns the text in a checkpoint's header; raises ValueError for a wrong digest, KeyError or TypeError for another header."""
    facts = json.loads(text)["__metadata__"]
    # Checkpoints of older versions have none.
    if facts.get("head") not in (None, head_digest(facts["graphmill"])):
        raise ValueError("its header does not match its digest")
    head = json.loads(facts["graphmill"])
    if head["format"] == FORMAT:
        head_schema(head, "")
    return head


def head_of(data: bytes, num_bytes: int) -> bytes:
    """Returns the header of a checkpoint from its file, or as much of it as needed; raises ValueError if it ends inside."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > num_bytes - 8:
        raise ValueError("it ends inside its header")
    return data[8 : 8 + length]


def require_whole(data: bytes) -> None:
    """Compares a checkpoint with its digest; raises ValueError if they differ, KeyError or TypeError if it is not one."""
    if parse_head(head_of(data, len(data)))["format"] != FORMAT:
        return  # its reader says so
    place = digest_place(data)
    if data[place : place + DIGEST_DIGITS] != digest_at(data, place):
        raise ValueError("its bytes do not match its digest")


def digest_at(data: bytes, place: int) -> bytes:
    """Returns the digest of a file whose own digest stands at `place`, as hexadecimal digits."""
    view, found = memoryview(data), xxhash.xxh3_128()
    for piece in (view[:place], b"0" * DIGEST_DIGITS, view[place + DIGEST_DIGITS :]):
        found.update(piece)
    return found.hexdigest().encode()


def digest_place(data: bytes) -> int:
    """Returns the place of the digest in a file."""
    length = int.from_bytes(data[:8], "little")
    return data.index(_DIGEST, 0, 8 + length) + len(_DIGEST)


def checkpoint_facts(path: Path) -> Mapping[str, Any]:
    """Returns the header of a checkpoint, of which "threads", "evaluation", "products" and "rows" say how its run computes.

    It is empty if there is no checkpoint, or one without such a header.
    """
    try:
        return _read_head(path)
    except UNREADABLE:
        return {}


def waiting_run(path: Path, version: str, *, ended: bool = True) -> Waiting | None:
    """Returns the position from which a run would go on, None without a checkpoint of that model version here or in the object store.

    Args:
        ended: whether the checkpoint of a training that ended counts; its scores were not computed, unless the model is there.
    """
    found = (read(path, version, ended=ended) for read in (waiting_here, waiting_stored))
    return max((each for each in found if each is not None), default=None)


def waiting_here(path: Path, version: str, *, ended: bool = True) -> Waiting | None:
    """Returns `waiting_run` of this home alone; no object store is asked."""
    try:
        return _waiting(_read_head(path), version, ended=ended)
    except UNREADABLE:
        return None


def waiting_stored(path: Path, version: str, *, ended: bool = True) -> Waiting | None:
    """Returns `waiting_run` of the object store alone."""
    data = stored_head(path)
    try:
        return None if data is None else _waiting(parse_head(data[8:]), version, ended=ended)
    except UNREADABLE:
        return None


def take_newer(path: Path, version: str) -> None:
    """Fetches the checkpoint of the object store into the home if the run has come further by it; does nothing without one.

    A stored one that is damaged replaces nothing: the run goes on from the one of this home.

    Raises:
        InputError: the stored checkpoint is damaged and this home has none, the object store cannot be used, or the disk is full.
    """
    here = waiting_here(path, version)
    try:
        data = stored_head(path)
        stored = None if data is None else _waiting(parse_head(data[8:]), version)
        if stored is not None and (here is None or stored > here):
            fetch_checkpoint(path, require_whole)
    except UNREADABLE as error:
        if here is None and not isinstance(error, OSError):
            problem = f"checkpoint {path.name} in {store_url()} is damaged: {error}"
            remedy = "train without --resume: the first checkpoint of that training takes its place"
            raise InputError(problem, remedy) from error
        if isinstance(error, OSError):
            raise


def _waiting(head: Mapping[str, Any], version: str, *, ended: bool = True) -> Waiting | None:
    """Returns the position of a run, None for one that ended unless `ended` counts it; raises ValueError for another model."""
    if head["version"] != version:
        raise ValueError(f"it is of model {head['version'][:12]}, not {version[:12]}")
    state = head["state"]
    return Waiting(int(state["epoch"]), int(state["position"])) if ended or not state.get("done") else None


def finished_epochs(path: Path) -> int | None:
    """Returns the number of epochs of a training that ended, None without its checkpoint, or if it has rows of nodes in files."""
    try:
        head = _read_head(path)
        return int(head["state"]["epoch"]) if head["state"]["done"] and "rows" not in head else None
    except UNREADABLE:
        return None


def _read_head(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        first, num_bytes = file.read(8), os.fstat(file.fileno()).st_size
        head_of(first, num_bytes)
        return parse_head(file.read(int.from_bytes(first, "little")))
