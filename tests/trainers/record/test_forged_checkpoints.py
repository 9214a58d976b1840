"""Checkpoints with nonsense in a field or a tensor, under digests of their own: each is refused by a message, or trains to the end."""

import copy
import json
import random
import shutil
from itertools import product

import pytest
import torch
from safetensors.torch import load, save

from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.loop.checkpoint import _signed
from graphmill.trainers.record.checkpoint_head import (
    DIGEST_DIGITS,
    checkpoint_path,
    head_digest,
    head_of,
    parse_head,
    waiting_run,
)
from tests.adversary import workshop
from tests.adversary.forged import MISSING, NONSENSE, places

TRAINERS = ("minibatch", "fresh", "fullgraph", "factored")
"""Trainers whose executors keep different states of their own."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A home with what these trainers train from and their checkpoints, and name -> step."""
    home, steps = tmp_path_factory.mktemp("forged") / "home", {}
    for step in workshop.steps(home):
        if not workshop.is_training(step) or step.name in TRAINERS:
            workshop.carry_out(home, step)
            steps |= {step.name: step} if workshop.is_training(step) else {}
    assert steps.keys() == set(TRAINERS)
    return home, steps


def rewritten(data: bytes, head: object, tensors: dict[str, torch.Tensor]) -> bytes:
    """Returns a checkpoint with another text or other tensors, under their digests."""
    text = json.dumps(head)
    facts = {"graphmill": text, "head": head_digest(text), "digest": "0" * DIGEST_DIGITS}
    return b"".join(bytes(piece) for piece in _signed(save(tensors, metadata=facts)))


def other_tensors(tensors: dict[str, torch.Tensor], name: str):
    """Yields the tensors with one that is missing, renamed, or of another shape or type."""
    sound, rest = tensors[name], {each: tensor for each, tensor in tensors.items() if each != name}
    part = name.partition("/")[0]
    yield rest
    for renamed in (f"{part}/x", f"{part}/999999999999/exp_avg", "x", "nobody/x"):
        yield rest | {renamed: sound}
    for made in (
        sound.reshape(-1)[:0],
        sound.reshape(-1)[:1].clone(),
        sound.unsqueeze(0),
        sound.to(torch.int8),
        sound.double() + 1e300,
    ):
        yield rest | {name: made.contiguous()}


def other_heads(head: dict):
    """Yields the text with nonsense in one field."""
    for (*above, key), value in product(places(head), NONSENSE):
        made = copy.deepcopy(head)
        inner = made
        for each in above:
            inner = inner[each]
        if value is MISSING:
            del inner[key]
        else:
            inner[key] = value
        try:
            json.dumps(made)
        except (TypeError, ValueError):
            continue
        yield made


@pytest.mark.parametrize("trainer", TRAINERS)
def test_nonsense_in_a_checkpoint_is_refused_or_trains_to_the_end(trained, tmp_path, trainer):
    home, steps = trained
    model = workshop.find(home, steps[trainer])
    path = checkpoint_path(home / "checkpoints", model.version)
    sound = path.read_bytes()
    head, tensors, draw = parse_head(head_of(sound, len(sound))), load(sound), random.Random(trainer)
    forged = [rewritten(sound, each, tensors) for each in draw.sample([*other_heads(head)], 16)]
    names = draw.sample(sorted(tensors), min(3, len(tensors)))
    names += [name for name in sorted(tensors) if name.startswith("executor/")]
    forged += [
        rewritten(sound, head, each) for name in names for each in draw.sample([*other_tensors(tensors, name)], 2)
    ]
    refused = 0
    for data in forged:
        path.write_bytes(data)
        shutil.rmtree(model.path)
        try:
            waiting_run(path, model.version)
            workshop.carry_out(home, steps[trainer], resume=True)
        except InputError as error:
            refused += 1
            assert "checkpoint" in error.problem and "--resume" in error.remedy
            path.write_bytes(sound)
            workshop.carry_out(home, steps[trainer], resume=True)
    assert refused > len(forged) // 2
    path.write_bytes(sound)
    assert Store(home).find("model", model.version) is not None
