"""Checkpoints are whole or absent, and damage is named."""

from pathlib import Path

import pytest
import torch

from graphmill.kernels.errors import InputError
from graphmill.trainers.loop.checkpoint import (
    Checkpoint,
    RunState,
    checkpoint_bytes,
    optimiser_state,
    parse_checkpoint,
    restore_optimiser,
    write_checkpoint,
)
from graphmill.trainers.record.checkpoint_head import waiting_run


def trained(steps: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    for step in range(steps):
        optimiser.zero_grad()
        model(torch.full((1, 3), float(step))).sum().backward()
        optimiser.step()
    return model, optimiser


def write_one(path: Path, steps: int = 2) -> Checkpoint:
    model, optimiser = trained(steps)
    state = RunState(epoch=3, position=1, loss_sum=0.1 + 0.2, history=[{"epoch": 0, "loss": 1 / 3}], best_score=0.5)
    ledger = {"moves": [], "counts": [{"name": "seeds", "layer": 0, "n": 9}]}
    best, kept = {"weight": torch.ones(2, 3)}, {"cursor/of/a technique": torch.arange(4)}
    parts = {"model": model.state_dict(), "best": best, "optimiser": optimiser_state(optimiser), "executor": kept}
    checkpoint = Checkpoint("a" * 64, state, ledger, parts)
    write_checkpoint(path, checkpoint)
    return checkpoint


@pytest.mark.parametrize("steps", [0, 2])
def test_what_was_written_comes_back_exactly(tmp_path: Path, steps: int) -> None:
    path = tmp_path / "folder" / "one.safetensors"
    written = write_one(path, steps)
    read = parse_checkpoint(path.read_bytes(), path, "a" * 64)
    assert (read.state, read.ledger) == (written.state, written.ledger)
    model, optimiser = trained(0)
    torch.nn.init.zeros_(model.weight)  # pyright: ignore
    model.load_state_dict(read.parts["model"])
    restore_optimiser(optimiser, read.parts["optimiser"])
    assert torch.equal(read.parts["best"]["weight"], torch.ones(2, 3))
    assert torch.equal(read.parts["executor"]["cursor/of/a technique"], torch.arange(4))
    straight_model, straight_optimiser = trained(steps)
    assert torch.equal(model.weight, straight_model.weight)  # pyright: ignore
    one, other = optimiser_state(optimiser), optimiser_state(straight_optimiser)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert len(one) == (0 if steps == 0 else 6)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_an_absent_checkpoint_is_none(tmp_path: Path) -> None:
    assert checkpoint_bytes(tmp_path / "none") is None


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    write_one(tmp_path / "one")
    with pytest.raises(InputError, match="is of model aaaaaaaaaaaa, not bbbbbbbbbbbb"):
        parse_checkpoint((tmp_path / "one").read_bytes(), tmp_path / "one", "b" * 64)


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_checkpoint_is_named(tmp_path: Path, keep: int) -> None:
    write_one(tmp_path / "one")
    (tmp_path / "one").write_bytes((tmp_path / "one").read_bytes()[:keep])
    with pytest.raises(InputError, match="is damaged"):
        parse_checkpoint((tmp_path / "one").read_bytes(), tmp_path / "one", "a" * 64)


def test_every_flipped_bit_is_damage(tmp_path: Path) -> None:
    """In a tensor it would be other weights under the version of the right ones."""
    path = tmp_path / "one"
    write_one(path)
    data = path.read_bytes()
    parse_checkpoint(data, path, "a" * 64)
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(InputError, match=r"is damaged|has format"):
            parse_checkpoint(bytes(flipped), path, "a" * 64)


def test_no_flipped_bit_is_another_place_to_go_on_from(tmp_path: Path) -> None:
    """`status` reads the header alone, and not the tensors, whose digest is that of the whole file."""
    path = tmp_path / "one"
    write_one(path)
    data, found = path.read_bytes(), waiting_run(path, "a" * 64)
    assert found is not None and (found.epoch, found.position) == (3, 1)
    for place in range(8 + int.from_bytes(data[:8], "little")):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            assert waiting_run(path, "a" * 64) in (found, None)


@pytest.mark.parametrize(
    ("ending", "raised"),
    [(OSError(28, "No space left on device"), InputError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_a_write_that_ends_early_keeps_the_one_before_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: BaseException, raised: type[BaseException]
) -> None:
    path = tmp_path / "one"
    write_one(path, steps=1)
    before = path.read_bytes()

    def ends(_: int) -> None:
        raise ending

    monkeypatch.setattr("os.fsync", ends)
    with pytest.raises(raised, match="No space left" if raised is InputError else None):
        write_one(path, steps=2)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["one"]


def test_containers_with_one_home_write_parts_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process of each container has the id 1. The collector knows half-written checkpoints by their ending."""
    names, replace = [], Path.replace

    def noted(path: Path, target: Path) -> Path:
        names.append(path.name)
        return replace(path, target)

    monkeypatch.setattr("os.getpid", lambda: 1)
    monkeypatch.setattr(Path, "replace", noted)
    for _ in range(2):
        write_one(tmp_path / "one.safetensors")
    assert len(set(names)) == 2 and all(
        name.startswith("one.safetensors.") and name.endswith(".part") for name in names
    )


def test_parameters_that_are_tied_are_written_under_both_names(tmp_path: Path) -> None:
    weight, path = torch.arange(6.0).reshape(2, 3), tmp_path / "tied.safetensors"
    named = {"first.weight": weight, "second.weight": weight, "view": weight[0], "none": torch.empty(0)}
    write_checkpoint(path, Checkpoint("a" * 64, RunState(), {}, {"model": named}))
    read = parse_checkpoint(path.read_bytes(), path, "a" * 64)
    assert all(torch.equal(read.parts["model"][name], named[name]) for name in named)


def test_a_transposed_view_of_a_tied_parameter_is_written(tmp_path: Path) -> None:
    weight, path = torch.arange(6.0).reshape(2, 3), tmp_path / "tied.safetensors"
    write_checkpoint(path, Checkpoint("a" * 64, RunState(), {}, {"model": {"one": weight, "two": weight.t()}}))
    read = parse_checkpoint(path.read_bytes(), path, "a" * 64)
    assert torch.equal(read.parts["model"]["two"], weight.t())
