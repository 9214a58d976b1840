"""Law 6 for whoever reads an artifact: with any bit of any file wrong, a step ends in one error or with the bytes of a sound run."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.assets.storage.damage import flip
from tests.trainers.graphs import TYPED, attributed
from tests.trainers.runs import SAMPLING, content, train_packed

DRAWN = 10


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """A graph with node types, relations and weights; the model reads all of them."""
    with attributed():
        return build_packed(tmp_path_factory.mktemp("damaged"), epochs=2)


def readers(packed: Packed) -> dict[str, Callable[[Path], object]]:
    """Name -> a step that reads the artifacts, writes to a home and returns what decides its result."""

    def hotness(home: Path) -> object:
        config = hotness_config(HotnessTable(), SAMPLING, 5)
        made = materialize(Store(home), HOTNESS, config, Threads(), {"graph": packed.graph})
        return np.asarray(made.array("order")).tobytes()

    def trained(trainer: str, **options: object) -> Callable[[Path], object]:
        return lambda home: content(train_packed(packed, home, trainer, **options, **TYPED))["weights.safetensors"]

    return {
        "hotness": hotness,
        "mapped": trained("minibatch"),
        "memory": trained("minibatch", features="memory"),
        "disk": trained("disk"),
    }


def files(packed: Packed) -> list[Path]:
    """Returns every content file of every artifact and part."""
    whole = list(packed)
    found: list[Artifact] = [*whole, *(each.open_part(name) for each in whole for name in each.parts)]
    return [each.path / name for each in found for name in each.files]


def damaged_outcomes(packed: Packed, home: Path, path: Path, bit: int, expected: dict[str, object]) -> dict[str, str]:
    """Returns reader -> "refused" or "sound", with one bit of a file wrong."""
    flip(path, bit)
    outcomes = {}
    try:
        for name, run in readers(packed).items():
            try:
                assert run(home / f"{path.parent.name[:8]}-{path.name}-{bit}-{name}") == expected[name], (
                    path,
                    bit,
                    name,
                )
                outcomes[name] = "sound"
            except InputError as error:
                assert path.parent.name[:12] in str(error), error
                outcomes[name] = "refused"
    finally:
        flip(path, bit)
    return outcomes


def attack(packed: Packed, home: Path, paths: list[Path], draw: random.Random) -> list[dict[str, str]]:
    expected = {name: run(home / f"sound-{name}") for name, run in readers(packed).items()}
    return [damaged_outcomes(packed, home, path, draw.randrange(8 * path.stat().st_size), expected) for path in paths]


def test_drawn_files(packed: Packed, tmp_path: Path) -> None:
    draw = random.Random(1)
    names = (
        "indices.npy",
        "labels.npy",
        "train_ids.npy",
        "edge_types.npy",
        "weights.npy",
        "node_type_ptr.npy",
        "rows.npy",
        "row_of.npy",
    )
    known = [path for path in files(packed) if path.name in names]
    outcomes = attack(packed, tmp_path, [*known, *draw.sample(files(packed), DRAWN - len(known))], draw)
    # What every training reads stops every training.
    assert all(each["mapped"] == each["memory"] == "refused" for each in outcomes[: len(known)])


@pytest.mark.slow("three flipped bits in every file that a training reads")
def test_every_file(packed: Packed, tmp_path: Path) -> None:
    draw = random.Random(2)
    outcomes = attack(packed, tmp_path, files(packed) * 3, draw)
    assert sum("refused" in each.values() for each in outcomes) > len(outcomes) // 2


def test_nothing_wrong_is_sealed_when_the_damage_is_mended(packed: Packed, tmp_path: Path) -> None:
    """A neighbour is another one while a training runs its first step, and is itself again afterwards."""
    indices = np.asarray(packed.graph.array("indices"))
    edge = int(np.flatnonzero(indices >= 2)[0])
    bit = 8 * (4096 + edge * indices.itemsize)
    path = packed.graph.path / "indices.npy"
    flip(path, bit)
    with pytest.raises(InputError, match=r"indices.npy is damaged"):
        train_packed(packed, tmp_path, "minibatch", **TYPED)
    flip(path, bit)
    assert Store(tmp_path).artifacts() == []
    assert content(train_packed(packed, tmp_path, "minibatch", **TYPED)) == content(
        train_packed(packed, tmp_path / "other", "minibatch", **TYPED)
    )
