"""Parts that the nodes of a cluster build are those that one machine builds, whatever happens to a node."""

import os
import time
from pathlib import Path

import pytest

from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.parts import PartError
from graphmill.assets.building.stage import ChecksFailedError, Silent
from graphmill.assets.cluster.pool import OnCluster
from graphmill.assets.storage.names.home import STORE_VARIABLE
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.building.parted_stage import PARTED, Execution, Semantic
from tests.assets.cluster.kept_nodes import descendants, kept_nodes

pytestmark = pytest.mark.first


class Listener(Silent):
    def __init__(self):
        self.total, self.lines, self.each = 0, [], lambda: None

    def advance(self, n):
        self.total += n
        self.each()

    def tell(self, line):
        self.lines.append(line)


@pytest.fixture(scope="module")
def cluster():
    with kept_nodes(2, num_cpus=1, memory=1 << 30) as nodes:
        yield nodes


def build(home: Path, cluster, listener=None, *, parts=5, **execution):
    elsewhere = None if cluster is None else OnCluster(cluster.address)
    given = Store(home), PARTED, Semantic(parts=parts), Execution(**execution), {}
    return materialize(*given, listener or Silent(), elsewhere=elsewhere)


def bytes_of(artifact):
    return [each.content for each in (artifact, *(artifact.open_part(name) for name in artifact.parts))]


def test_nodes_build_the_bytes_of_one_machine(tmp_path, cluster):
    listener = Listener()
    there = build(tmp_path / "there", cluster, listener, trouble=("", "pid"))
    here = build(tmp_path / "here", None, trouble=("", "pid"))
    parts = [there.open_part(name) for name in there.parts]
    assert [part.array("values").tolist() for part in parts] == [
        here.open_part(name).array("values").tolist() for name in here.parts
    ]
    assert there.array("sums").tolist() == here.array("sums").tolist()
    builders = {part.summary["numbers"]["pid"] for part in parts}
    # Neither this process nor one that it started, and none of them outlives the build.
    assert not builders & {os.getpid(), *descendants(os.getpid())}
    until(lambda: not [pid for pid in builders if "ray::" in command(pid)])
    assert listener.total == 15  # every unit once
    assert not (tmp_path / "there" / "cluster").exists()
    assert build(tmp_path / "there", cluster, trouble=("", "pid")).reused


UNUSUAL = pytest.mark.slow("a defect, a failed check and a kill of a part on a node")


@pytest.mark.parametrize(
    ("trouble", "kind", "text"),
    [
        ("error", InputError, "part p2 of parted: a row is wrong\n  remedy: correct it"),
        pytest.param("defect", PartError, "part p2 of parted failed:(?s:.*)of the test", marks=UNUSUAL),
        pytest.param(
            "check",
            ChecksFailedError,
            r"part p2 of parted: stage parted failed 1 check(?s:.*)fine: it was not",
            marks=UNUSUAL,
        ),
        pytest.param("die", InputError, "the process or node that built part p2 of parted died 4 times", marks=UNUSUAL),
    ],
)
def test_an_error_on_a_node_is_that_of_one_machine(tmp_path, cluster, trouble, kind, text):
    with pytest.raises(kind, match=text):
        build(tmp_path, cluster, trouble=("p2", trouble))
    assert os.listdir(tmp_path / "store" / ".staging") == [] and not list((tmp_path / "store" / ".claims").iterdir())
    assert bytes_of(build(tmp_path, cluster)) == bytes_of(build(tmp_path / "here", None))


def test_a_cancellation_takes_the_work_off_the_nodes(tmp_path, cluster):
    listener = Listener()

    def cancel():
        if listener.total >= 2:  # p0 and p1 have begun
            raise KeyboardInterrupt

    listener.each = cancel
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, cluster, listener, trouble=("p1", "wait"))
    assert not [each for each in descendants(os.getpid()) if "cluster.driver" in command(each)]
    until(lambda: not [each for each in cluster.pids() if "build_part" in command(each) or "parted" in command(each)])
    assert bytes_of(build(tmp_path, cluster)) == bytes_of(build(tmp_path / "here", None))


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def until(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9"])
def test_no_cluster_is_one_message(tmp_path, address):
    with pytest.raises(InputError, match=f"no Ray cluster answers at {address}: (?s:.*)refused(?s:.*)start it"):
        materialize(Store(tmp_path), PARTED, Semantic(), Execution(), {}, elsewhere=OnCluster(address))


def test_a_node_that_does_not_see_the_home_is_named(tmp_path, monkeypatch):
    """Its answer is checked before any part is begun: the home of these nodes is another one."""
    from graphmill.assets.cluster import connect

    nodes = [connect.ClusterNode(id="a", ip="10.0.0.7", host="far", cpus=1, gpus=0, memory_bytes=1)]
    code = connect.code_digest()
    with pytest.raises(InputError, match=f"node far does not see the home {tmp_path}(?s:.*){STORE_VARIABLE}"):
        connect._require_equal(nodes, {"a": {"code": code, "home": None, "root": "/r"}}, tmp_path, "m")
    with pytest.raises(InputError, match="node far has another version of graphmill in /r"):
        connect._require_equal(nodes, {"a": {"code": "0", "home": "/h", "root": "/r"}}, tmp_path, "m")


@pytest.mark.slow("a node that is killed while it builds, and the head of a cluster that is killed")
def test_a_node_and_then_the_head_are_killed(tmp_path, capfd):
    with kept_nodes(3, num_cpus=1, memory=1 << 30) as nodes:
        listener, killed = Listener(), []
        capfd.readouterr()  # lines of the nodes that start

        def kill():
            if listener.total >= 4 and not killed:
                killed.append(nodes.kill(2))

        listener.each = kill
        found = build(tmp_path / "there", nodes, listener, parts=40, trouble=("", "slow"))
        assert killed and bytes_of(found) == bytes_of(build(tmp_path / "here", None, parts=40))
        assert any("is lost; its parts are built on the others" in line for line in listener.lines)
        assert listener.total == 40 * 41 // 2
        # A part that was begun again may say it twice; nothing else is printed.
        assert {f"p{number} is built" for number in range(40)} == set(capfd.readouterr().err.splitlines())

        beheaded = Listener()
        beheaded.each = lambda: nodes.kill_head() if beheaded.total == 1 else None
        with pytest.raises(InputError, match=f"the Ray cluster at {nodes.address} does not answer"):
            build(tmp_path / "other", nodes, beheaded, trouble=("p1", "wait"))
        assert capfd.readouterr().err == ""  # the error is the one message
