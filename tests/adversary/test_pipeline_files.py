"""What no machine can carry out is refused at its line. Mutated files are one of the kinds of tests/adversary/kinds.py."""

from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("hidden", "1_000_000_000_000", "above 1,000,000"),
        ("threads", "1_000_000", "above 4,096"),
        ("lr", "1e300", "above 1,000,000"),
        ("epochs", "9" * 23, r"beyond 2\^63"),
        ("epochs", "9" * 5000, ":15: a number has thousands of digits"),
        ("name", '"a\\u0000b"', "a character that ends a text"),
        ("name", "[" * 900 + "]" * 900, "nested too deeply"),
        ("model", '"\\u001b[31mred"', r"\\x1b\[31mred"),
        ("hidden", '"' + "x" * 5000 + '"', r"x\.\.\. \(5,002 characters\)"),
    ],
)
def test_what_no_machine_can_carry_out_is_refused_at_its_line(tmp_path: Path, key: str, value: str, said: str) -> None:
    path = tmp_path / "made.toml"
    keys = {"name": '"one"', "model": '"sage"', "hidden": "8", "threads": "1", "lr": "0.1", "epochs": "1"} | {
        key: value
    }
    train = "".join(f"{name} = {given}\n" for name, given in keys.items())
    path.write_text(
        '[graph]\nsource = "sbm"\nnodes = 100\n\n[sampling]\nfanouts = [2, 2]\nbatch_size = 10\n\n[[train]]\n' + train
    )
    with pytest.raises(InputError, match=said):
        load_pipeline(path, TrainTable)


@pytest.mark.parametrize("path", ["x" * 300, "folder/" * 700])
def test_a_path_that_no_system_call_takes_is_refused_at_its_line(tmp_path: Path, path: str) -> None:
    made = tmp_path / "made.toml"
    made.write_text(f'[graph]\nsource = "npz"\npath = "{path}"\n')
    with pytest.raises(InputError, match=r"made.toml:3: path = .* is longer than a path can be"):
        load_pipeline(made, TrainTable)


def test_counting_and_threads_are_bounded() -> None:
    from graphmill.assets.building.execution import Workers
    from graphmill.assets.hotness.config import HotnessTable

    with pytest.raises(InputError, match="rounds = 1000000 is above 10,000"):
        HotnessTable(rounds=10**6)
    for name in ("threads", "workers"):
        with pytest.raises(InputError, match=f"{name} = 100000 is above 4,096"):
            Workers(**{name: 10**5})
