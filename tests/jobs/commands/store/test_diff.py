import json

import numpy as np
import pytest

from graphmill.assets.building.stage import Check, Summary
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.store.diff import ABSENT, difference, print_difference
from graphmill.kernels.errors import InputError
from tests.jobs.trained import trained_home


def put(store, version, *, arrays, texts=(), config=None, numbers=None, inputs=None, raw=None, checks=(), code=1):
    with store.writer("toy", version * 64) as writer:
        for name, array in arrays.items():
            writer.save(name, array)
        for name, text in dict(texts).items():
            writer.path(name).write_text(text)
        summary = Summary(numbers=numbers or {}, checks=list(checks))
        return writer.publish(config or {}, inputs or {}, summary, {}, code_version=code, raw=raw)


def printed(store, one, other):
    lines = []
    print_difference(store.resolve(one), store.resolve(other), lines.append)
    return "\n".join(lines)


@pytest.fixture
def two(tmp_path):
    store = Store(tmp_path)
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    changed = table.copy()
    changed[1, 2] += 0.5
    changed[3] = 0
    one = put(
        store,
        "a",
        arrays={"same": np.arange(3), "table": table, "grown": np.arange(4), "bent": np.zeros((2, 2))},
        texts={"note.txt": "one", "old.txt": "x"},
        config={"size": 3, "deep": {"rate": 0.5, "list": [1, 2]}, "kept": True},
        numbers={"nodes": 10, "score": 0.5, "names": ["a"], "equal": 1, "gone": 2},
        raw={"edges": "1" * 64},
        checks=[Check(name="sorted", passed=True, detail="all"), Check(name="same", passed=True)],
    )
    other = put(
        store,
        "b",
        arrays={"same": np.arange(3), "table": changed, "grown": np.arange(6), "bent": np.zeros(4)},
        texts={"note.txt": "two!", "new.txt": "y"},
        config={"size": 4, "deep": {"rate": 0.5, "list": [1, 3]}, "kept": True},
        numbers={"nodes": 12, "score": 0.25, "names": ["b"], "equal": 1},
        inputs={"source": one},
        raw={"edges": "2" * 64},
        checks=[
            Check(name="sorted", passed=False, detail="row 3", blocking=False),
            Check(name="same", passed=True),
        ],
        code=2,
    )
    return store, one, other


def test_every_part_of_the_recipe_is_compared(two):
    _, one, other = two
    found = difference(one, other)
    assert {change.name: (change.one, change.other) for change in found.recipe} == {
        "code version": (1, 2),
        "size": (3, 4),
        "deep.list": ([1, 2], [1, 3]),
        "input source": (ABSENT, "toy/aaaaaaaaaaaa"),
        "raw edges": ("1" * 16, "2" * 16),
    }


def test_numbers_and_checks(two):
    _, one, other = two
    found = difference(one, other)
    assert {change.name: change.difference for change in found.numbers} == {
        "nodes": 2,
        "score": -0.25,
        "names": None,
        "gone": None,
    }
    assert found.num_equal_numbers == 1
    assert [(c.name, c.one, c.other) for c in found.checks] == [("sorted", "passed all", "FAILED row 3")]


def test_files_and_arrays(two):
    _, one, other = two
    found = difference(one, other)
    assert found.equal_files == ("same.npy",)
    files = {change.name: change for change in found.files}
    assert set(files) == {"table.npy", "grown.npy", "bent.npy", "note.txt", "old.txt", "new.txt"}
    table = files["table.npy"].array
    assert table is not None and (table.differing_elements, table.differing_rows, table.first) == (4, 2, (1, 2))
    assert table.values == (5.0, 5.5) and table.largest == 11.0
    grown = files["grown.npy"].array
    assert grown is not None and grown.differing_elements == 0 and grown.num_rows == 4
    assert files["bent.npy"].array is None and files["note.txt"].array is None
    assert files["old.txt"].other is None and files["new.txt"].one is None


def test_the_report(two):
    store, _, _ = two
    text = printed(store, "a", "toy/b")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for line in (
        "A toy/" + "a" * 64,
        "nodes 10 12 +2",
        "score 0.5 0.25 -0.25",
        "gone 2 (none)",
        "size 3 4 +1",
        "input source (none) toy/aaaaaaaaaaaa",
        "sorted passed all FAILED row 3",
        "table.npy different, float32[4, 3]; 4 of 12 elements in 2 rows differ, first [1, 2]: 5 against 5.5; at most by 11",
        "grown.npy different, int64[4] against int64[6]; the 4 rows that both have are equal in value",
        "bent.npy different, float64[2, 2] against float64[4]",
        "new.txt only in B, 1 B",
        "1 equal: same.npy",
    ):
        assert line in lines, (line, text)
    assert "metrics" not in text


def test_an_artifact_and_itself(two):
    store, _, _ = two
    assert printed(store, "a", "a").endswith("A and B are the same artifact")
    with pytest.raises(InputError, match=r"no artifact in .* begins with 'c'"):
        printed(store, "a", "c")


def test_models_are_compared_epoch_by_epoch(tmp_path):
    store = trained_home(tmp_path)
    models = {
        (each.config["train"]["model"], each.config["seed"]): each
        for each in store.artifacts()
        if each.stage == "model"
    }
    two_epochs, three_epochs = models["sage", 0], models["sage", 1]
    found = difference(two_epochs, three_epochs)
    assert [change.name for change in found.recipe] == ["seed", "train.epochs", "train.lr"]
    losses = [
        [json.loads(line)["loss"] for line in each.file("metrics.jsonl").read_text().splitlines()]
        for each in (two_epochs, three_epochs)
    ]
    assert [values["loss"] for _, values in found.epochs] == [
        (losses[0][0], losses[1][0]),
        (losses[0][1], losses[1][1]),
        (None, losses[1][2]),
    ]
    text = printed(store, two_epochs.version[:12], three_epochs.version[:12])
    assert "first epoch that differs: 1" in text and "weights.safetensors" in text
    third = text.splitlines()[-2].split()
    assert third[0] == "3" and third[1] == "-"


def test_equal_metrics_say_so(tmp_path):
    store = Store(tmp_path)
    rows = "".join(json.dumps({"epoch": epoch, "loss": 0.5}) + "\n" for epoch in range(3))
    for version in "ab":
        put(store, version, arrays={}, texts={"metrics.jsonl": rows}, config={"lr": version})
    assert printed(store, "a", "b").endswith("  all 3 epochs are equal")
