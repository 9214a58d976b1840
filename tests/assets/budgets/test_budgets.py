"""Budgets: what "auto" means, that it is resolved once, and that nothing of the machine enters where nothing is auto."""

import hashlib
import json
import os
import threading

import pytest

from graphmill.assets.budgets.config import BudgetsConfig, MemoryConfig, budgets_config
from graphmill.assets.budgets.measured import PLACE, MachineBytes, measure, measured_bytes, measured_digest, refresh
from graphmill.assets.budgets.read import open_budgets
from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.building.materialize import stage_version
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.rows.caches import resolve
from tests.trainers.runs import TABLE

GB = 1000**3
FEATURES = 400 * 48


def write_measured(home, memory_bytes, disk_bytes=100 * GB):
    (home / PLACE).parent.mkdir(parents=True, exist_ok=True)
    (home / PLACE).write_text(json.dumps({"memory_bytes": memory_bytes, "disk_bytes": disk_bytes}))


@pytest.fixture
def graph(tmp_path):
    return random_graph_artifacts(tmp_path)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"device": 0, "host": "0", "disk": "0B"}, (0, 0, 0)),
        ({"device": "10%", "host": "100%", "disk": "5x"}, (FEATURES // 10, FEATURES, 5 * FEATURES)),
        ({"device": "1KiB", "host": 5000, "disk": "1.5kB"}, (1024, 5000, 1500)),
    ],
)
def test_what_is_given_is_taken_and_the_machine_is_not_asked(tmp_path, graph, given, expected):
    artifact = resolve(tmp_path, graph, **given)
    budgets = open_budgets(artifact)
    assert (budgets.device_bytes, budgets.host_bytes, budgets.disk_bytes) == expected
    assert budgets.automatic == () and budgets.device_total_bytes is None
    assert not (tmp_path / PLACE).exists() and artifact.manifest["raw"] == {} and artifact.verify() == []
    elsewhere = stage_version(
        BudgetsStage(tmp_path / "other"), BudgetsConfig(memory=MemoryConfig(**given)), {"features": graph.features}
    )
    assert elsewhere == artifact.version


def test_auto_is_a_share_of_the_memory_less_the_declared_work(tmp_path, graph):
    write_measured(tmp_path, 16 * GB, 30 * GB)
    plain = open_budgets(resolve(tmp_path, graph))
    assert (plain.device_bytes, plain.host_bytes, plain.disk_bytes) == (4 * GB, 4 * GB, 15 * GB)
    assert plain.automatic == ("device", "host", "disk") and plain.device_total_bytes == 4 * GB
    tables = (
        TrainTable(**TABLE, workspace="1GB", queue="500MB", eval_workspace="500MB"),
        TrainTable(**TABLE | {"name": "b"}, queue="2GB", eval_workspace="1MB"),
    )
    config = budgets_config(MemoryConfig(), tables)
    assert (config.device_work_bytes, config.host_work_bytes) == (GB, 2 * GB + 10**6)
    work = {"device_work_bytes": GB, "host_work_bytes": 2 * GB}
    artifact = resolve(tmp_path, graph, work)
    assert (open_budgets(artifact).device_bytes, open_budgets(artifact).host_bytes) == (3 * GB, 2 * GB)
    assert artifact.summary["numbers"]["device"] == (
        "auto: a quarter of 14.9 GiB for the logical device, less 953.7 MiB of workspace = 2.8 GiB"
    )
    assert artifact.summary["numbers"]["device_share"] == "400 of 400 rows"
    huge = open_budgets(resolve(tmp_path, graph, {"device_work_bytes": 99 * GB, "host_work_bytes": 99 * GB}))
    assert (huge.device_bytes, huge.host_bytes) == (0, 0)


def test_declared_work_does_not_enter_where_nothing_is_auto():
    memory = MemoryConfig(device="1%", host="1%")
    assert budgets_config(memory, (TrainTable(**TABLE, workspace="1GB"),)) == budgets_config(memory, ())


def test_auto_stays_until_it_is_refreshed(tmp_path, graph, monkeypatch):
    found = [MachineBytes(memory_bytes=8 * GB, disk_bytes=GB), MachineBytes(memory_bytes=32 * GB, disk_bytes=GB)]
    monkeypatch.setattr("graphmill.assets.budgets.measured.measure", lambda home: found[0])
    first = resolve(tmp_path, graph)
    del found[0]
    again = resolve(tmp_path, graph)
    assert again.version == first.version and again.reused
    assert refresh(tmp_path) == found[0] == measured_bytes(tmp_path)
    changed = resolve(tmp_path, graph)
    assert changed.version != first.version and not changed.reused
    assert open_budgets(changed).device_bytes == 4 * open_budgets(first).device_bytes
    assert changed.manifest["raw"] == {"measured": measured_digest(tmp_path)}


def test_a_refresh_while_budgets_are_resolved_publishes_nothing(tmp_path, graph, monkeypatch):
    def refreshed(home):
        write_measured(tmp_path, 3 * GB)
        return measured_bytes(home)

    write_measured(tmp_path, 2 * GB)
    monkeypatch.setattr("graphmill.assets.budgets.stage.measured_bytes", refreshed)
    with pytest.raises(InputError, match="measured again while the budgets were resolved"):
        resolve(tmp_path, graph)


def test_budgets_beyond_the_memory_are_refused(tmp_path, graph):
    write_measured(tmp_path, 10_000)
    with pytest.raises(
        InputError, match=r"device and host fit the memory: 18.8 KiB of rows .* in 9.8 KiB of the machine"
    ):
        resolve(tmp_path, graph, device="60%", host="60%", disk="auto")


def test_the_check_and_the_picture_have_the_numbers_of_the_levels(tmp_path, graph, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "graphmill.assets.figures.budgets.budget_bars", lambda path, levels, title: drawn.append((levels, title))
    )
    write_measured(tmp_path, 16 * GB, 30 * GB)
    artifact = resolve(tmp_path, graph, {"device_work_bytes": GB}, device="auto", host="25%", disk="auto")
    levels = {level.name.split("\n")[0]: (level.num_bytes, dict(level.parts)) for level in drawn[0][0]}
    assert levels["features"] == (
        FEATURES, {"rows on the device": FEATURES, "rows on the host": 0, "rows in the feature file alone": 0}
    )  # fmt: skip
    assert levels["device"][0] == 4 * GB and levels["device"][1]["work of the training"] == GB
    assert levels["device"][1]["rows on the device"] == FEATURES
    assert levels["host"] == (FEATURES // 4, {
        "rows on the host": 0, "budget that no row needs": FEATURES // 4, "not given to graphmill": 0
    })  # fmt: skip
    assert levels["disk"] == (30 * GB, {"packed rows": 15 * GB, "not given to graphmill": 15 * GB})
    (check,) = artifact.summary["checks"]
    assert check["numbers"] == {"rows held on device and host, bytes": FEATURES, "memory, bytes": 16 * GB}
    whole = resolve(tmp_path, graph)
    host = dict(drawn[1][0][2].parts)
    assert host["the logical device"] == host["budget that no row needs"] == 4 * GB and whole.summary["figures"]


@pytest.mark.usefixtures("drawn")
def test_given_budgets_are_drawn_without_a_machine(tmp_path, graph):
    artifact = resolve(tmp_path, graph, device="10%", host="20%", disk="2x")
    (check,), (figure,) = artifact.summary["checks"], artifact.summary["figures"].values()
    held = FEATURES // 10 // 48 * 48 + FEATURES // 5 // 48 * 48
    assert check["numbers"] == {
        "rows held on device and host, bytes": held,
        "budgets, bytes": FEATURES // 10 + FEATURES // 5,
    }
    assert 1000 < artifact.file(figure).stat().st_size < 100_000 and artifact.verify() == []


def test_first_measurements_at_once_agree(tmp_path, monkeypatch):
    count = iter(range(1, 100))
    monkeypatch.setattr(
        "graphmill.assets.budgets.measured.measure", lambda home: MachineBytes(memory_bytes=next(count), disk_bytes=1)
    )
    seen: list[MachineBytes] = []
    threads = [threading.Thread(target=lambda: seen.append(measured_bytes(tmp_path))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 1 and len(seen) == 16
    assert [path.name for path in (tmp_path / PLACE).parent.iterdir()] == [PLACE.name]


def test_the_machine_is_measured(tmp_path):
    found = measure(tmp_path / "not" / "there")
    assert 0 < found.memory_bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") and found.disk_bytes > 0


@pytest.mark.parametrize("text", ["", "[]", '{"memory_bytes": 5}', '{"memory_bytes": "x", "disk_bytes": 1}'])
def test_damaged_measurements_are_named(tmp_path, text):
    write_measured(tmp_path, 1)
    (tmp_path / PLACE).write_text(text)
    with pytest.raises(InputError, match=r"memory.json is damaged: .*\n.*graphmill budgets --refresh"):
        measured_bytes(tmp_path)


def test_no_flipped_bit_is_another_budget(tmp_path):
    """A digit that is another one would change every budget of "auto" and all that is built from it."""
    sound, digest = measured_bytes(tmp_path), measured_digest(tmp_path)
    data = (tmp_path / PLACE).read_bytes()
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        (tmp_path / PLACE).write_bytes(flipped)
        with pytest.raises(InputError, match=r"memory.json is damaged: (.|\n)*graphmill budgets --refresh"):
            measured_bytes(tmp_path)
    values = {name: value for name, value in json.loads(data).items() if name != "digest"}
    (tmp_path / PLACE).write_text(json.dumps(values, sort_keys=True, indent=1) + "\n")  # as it was before it was sealed
    assert measured_bytes(tmp_path) == sound and measured_digest(tmp_path) == digest
    assert digest == hashlib.sha256((tmp_path / PLACE).read_bytes()).hexdigest()


@pytest.mark.parametrize("value", ["ten percent", "-1", -1, "5 q", "²", "9" * 5000, 2**63])
def test_sizes_are_checked(value):
    with pytest.raises(InputError, match=rf"host = {repr(value)[:90]}[^:]*: (.|\n)*; write .auto."):
        MemoryConfig(host=value)


def test_a_text_without_a_unit_is_questioned():
    with pytest.raises(InputError, match='device = "10" has no unit: as it stands it is 10 bytes'):
        MemoryConfig(device="10")
    assert MemoryConfig(device="0", host=10).host == 10
