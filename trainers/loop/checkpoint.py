"""Checkpoints: one safetensors file that is whole or absent.

The file holds the parameters, the best parameters so far, the optimiser's moments and the executor's own state, and in its header the
position in the run, the scores and the ledger. It is written beside its final name, flushed to the disk and renamed, so a kill at any
moment leaves the checkpoint before it. A run depends on nothing else: random decisions are keyed, so no generator has to be saved.

The header also holds a digest of the whole file, computed with zeros in its own place. It is compared before anything is taken from the
file, so a flipped bit in a tensor is damage and not other weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from graphmill.assets.storage.system.filesystem import beside, read_whole_file, sync_path
from graphmill.assets.storage.system.refused import refusal
from graphmill.kernels.errors import InputError
from graphmill.trainers.models.products import library
from graphmill.trainers.record.checkpoint_head import (
    DIGEST_DIGITS,
    FORMAT,
    Waiting,
    digest_at,
    digest_place,
    head_digest,
    head_of,
    parse_head,
    require_whole,
)

PARTS = ("model", "best", "optimiser", "executor")
"""Beginnings of tensor names: the parameters, the best ones so far, the optimiser's moments, the executor's state."""


@dataclass
class RunState:
    """The position and scores of a run; its tensors are in `Checkpoint`."""

    # The training epoch in progress and the next batch of it.
    epoch: int = 0
    position: int = 0
    # Sum of the losses of this epoch's batches so far; a float64[] while a device holds it, never in a file.
    loss_sum: float | Tensor = 0.0
    # One row per epoch: epoch, loss, and valid if it was evaluated.
    history: list[dict[str, Any]] = field(default_factory=list)
    # The best validation score and the epoch (from 1) that gave it; None and 0 before any.
    best_score: float | None = None
    best_epoch: int = 0
    # Number of evaluations since `best_epoch`.
    waited: int = 0
    # Whether training has ended.
    done: bool = False
    # Rows of the ledger at the beginning of the epoch, which stay if the epoch is cut off.
    moved: dict[str, Any] = field(default_factory=dict)


@dataclass
class Checkpoint:
    """The full state of a run, to continue from."""

    # Version of the model; a checkpoint of another recipe is refused.
    version: str
    # Position and scores of the run.
    state: RunState
    # The ledger's rows so far.
    ledger: dict[str, Any]
    # Part -> name -> tensor, for each of `PARTS`; stored under "PART/NAME".
    parts: Mapping[str, Mapping[str, Tensor]]
    # Numbers of threads that the run has had, oldest first.
    threads: Sequence[int] = ()
    # Way of its evaluations, if the recipe leaves that open; "" if not.
    evaluation: str = ""
    # Name of the files that have the rows of nodes (trainers/models/rows/row_file.py); "" if they are among the tensors, or there are none.
    rows: str = ""


@dataclass(frozen=True)
class CheckpointFile:
    """The file of a run's checkpoint, and the facts about the run that each checkpoint has.

    Attributes:
        threads, evaluation, rows: as of `Checkpoint`.
        kept, stored: positions of the checkpoints of earlier runs of the recipe in this home and in the object store, each of which stays
            until this run has come as far; None without one.
    """

    path: Path
    version: str
    threads: Sequence[int] = ()
    evaluation: str = ""
    rows: str = ""
    kept: Waiting | None = None
    stored: Waiting | None = None


def apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors without shared memory, as the file format requires; tied parameters of a user's model are copied."""
    seen: set[int] = set()
    found = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        plain = tensor.detach()
        found[name] = plain.clone(memory_format=torch.contiguous_format) if memory in seen else plain.contiguous()
        if tensor.numel():
            seen.add(memory)
    return found


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replaces a checkpoint atomically and durably; raises InputError if the disk refuses it, and the previous checkpoint stays."""
    head = {"format": FORMAT, "version": checkpoint.version, "ledger": checkpoint.ledger}
    head |= {"state": asdict(checkpoint.state), "threads": list(checkpoint.threads), "products": library()}
    text = json.dumps(head | {name: value for name in ("evaluation", "rows") if (value := getattr(checkpoint, name))})
    assert set(checkpoint.parts) <= set(PARTS), f"a checkpoint has the parts {PARTS}"
    facts = {"graphmill": text, "head": head_digest(text), "digest": "0" * DIGEST_DIGITS}
    tensors = {f"{part}/{name}": tensor for part, named in checkpoint.parts.items() for name, tensor in named.items()}
    pieces = _signed(save(apart(tensors), metadata=facts))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = beside(path, "part")  # two writers of one version have separate files
    try:
        with part.open("wb") as file:
            file.writelines(pieces)
        sync_path(part)
        part.replace(path)
    except OSError as error:
        said = refusal(error)
        problem = f"cannot write the checkpoint {path} ({sum(map(len, pieces)):,} bytes): {error}"
        raise InputError(problem, f"{said.remedy if said else 'free space'}; then use --resume") from error
    finally:
        part.unlink(missing_ok=True)  # an interrupt may have come before the file took its name
    sync_path(path.parent)


def checkpoint_bytes(path: Path) -> bytes | None:
    """Returns the bytes of a checkpoint, None if there is none; raises InputError if the file cannot be read."""
    try:
        return read_whole_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        remedy = "correct its permissions, or move it away and train without --resume"
        raise InputError(f"checkpoint {path} cannot be read: {error.strerror}", remedy) from error


def parse_checkpoint(data: bytes, path: Path, version: str) -> Checkpoint:
    """Returns the checkpoint that a file holds; raises InputError if the file is damaged, or belongs to another recipe."""
    remedy = _remedy(path)
    try:
        require_whole(data)
        head = parse_head(head_of(data, len(data)))
        tensors = load(data)
        state = RunState(**head["state"])
        parts: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS}
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = tensor
    except Exception as error:
        raise damaged_checkpoint(path, error) from error
    if head["format"] != FORMAT:
        raise InputError(f"checkpoint {path} has format {head['format']}; this version reads format {FORMAT}", remedy)
    if head["version"] != version:
        raise InputError(f"checkpoint {path} is of model {head['version'][:12]}, not {version[:12]}", remedy)
    facts = head.get("threads", ()), head.get("evaluation", ""), head.get("rows", "")
    return Checkpoint(version, state, head["ledger"], parts, *facts)


def _remedy(path: Path) -> str:
    return f"remove {path} and train without --resume"


def damaged_checkpoint(path: Path, problem: object) -> InputError:
    """Returns the error about a damaged checkpoint."""
    return InputError(f"checkpoint {path} is damaged: {problem}", _remedy(path))


def require_tensors(part: str, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raises ValueError if a part of a checkpoint lacks or adds a tensor, or has one of another shape or type."""
    for name in sorted(found.keys() | wanted.keys()):
        shapes = [
            "missing" if name not in each else f"{each[name].dtype}{list(each[name].shape)}" for each in (found, wanted)
        ]
        if shapes[0] != shapes[1]:
            raise ValueError(f"{part}/{name} is {shapes[0]} in the file and {shapes[1]} in the training")


def _signed(data: bytes) -> list[bytes | memoryview]:
    """Returns the pieces of a file with its digest in place of the zeros; a whole one would be a second copy of it."""
    place, view = digest_place(data), memoryview(data)
    return [view[:place], digest_at(data, place), view[place + DIGEST_DIGITS :]]


def optimiser_state(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Returns the optimiser's moments as "NUMBER/NAME" -> tensor."""
    return {
        f"{number}/{name}": tensor
        for number, moments in optimiser.state_dict()["state"].items()
        for name, tensor in moments.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> None:
    """Restores the moments of `optimiser_state`, without other names, which are of nodes' rows; raises ValueError if they do not fit."""
    found = {name: tensor for name, tensor in state.items() if name.partition("/")[0].isdecimal()}
    parameters = [each for group in optimiser.param_groups for each in group["params"]]
    kept = ("momentum_buffer",) if "momentum" in optimiser.defaults else ("step", "exp_avg", "exp_avg_sq")
    moments: dict[int, dict[str, Tensor]] = {}
    for number in {int(name.partition("/")[0]) for name in found}:
        # A parameter that no step has reached has no moments.
        like = parameters[number] if number < len(parameters) else torch.zeros(0)
        wanted = {f"{number}/{each}": torch.zeros(()) if each == "step" else like for each in kept}
        own = {name: tensor for name, tensor in found.items() if int(name.partition("/")[0]) == number}
        require_tensors("optimiser", own, wanted)
        moments[number] = {name.partition("/")[2]: tensor for name, tensor in own.items()}
    optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})
