"""Links as text: groups, bridges and direct links become routes; mistakes are named; nvidia-smi's matrix becomes such a text."""

import pytest

from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.gpu_links import gpu_links, links_text, parse_matrix
from graphmill.trainers.ranks.links import parse_links

FIGURE_9C = "0 1 | 2 3 @ 32GB/s | 16GB/s"
TWO_SWITCHES = """\
\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tPIX\tSYS\tSYS\tNODE\t0-15,32-47\t0\t\tN/A
GPU1\tPIX\t X \tSYS\tSYS\tNODE\t0-15,32-47\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tPIX\tSYS\t16-31,48-63\t1\t\tN/A
GPU3\tSYS\tSYS\tPIX\t X \tSYS\t16-31,48-63\t1\t\tN/A
NIC0\tNODE\tNODE\tSYS\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def names(text, one, other):
    links = parse_links(text)
    return [links.names[link] for link in links.routes[one, other]]


def test_routes_pass_switches_and_bridges():
    assert names(FIGURE_9C, 0, 1) == ["0 out", "1 in"]
    assert names(FIGURE_9C, 0, 3) == ["0 out", "{0 1}>{2 3}", "3 in"]
    assert names(FIGURE_9C, 3, 0) == ["3 out", "{2 3}>{0 1}", "0 in"]
    three = "0 | 1 2 | 3 @ 1GB/s | 500MB/s"
    assert names(three, 0, 2) == ["0 out", "{0} out", "{1 2} in", "2 in"]
    sockets = "0 1 | 2 3 || 4 5 | 6 7 @ 32GB/s | 24GB/s || 16GB/s"
    assert names(sockets, 0, 2) == ["0 out", "{0 1} out", "{2 3} in", "2 in"]
    assert names(sockets, 1, 6) == ["1 out", "{0 1} out", "{0 1 2 3}>{4 5 6 7}", "{6 7} in", "6 in"]


def test_a_direct_link_takes_the_place_of_a_way_over_switches():
    links = parse_links(f"{FIGURE_9C}; 0-2 50GB/s; efficiency 1 0.6")
    assert [links.names[link] for link in links.routes[0, 2]] == ["0>2"] and links.alone_gbps((0, 2)) == 50
    assert [links.names[link] for link in links.routes[2, 0]] == ["2>0"]
    assert links.alone_gbps((0, 3)) == 16 and links.alone_gbps((0, 1)) == 32
    assert [links.share(transfers) for transfers in (1, 2, 9)] == [1, 0.6, 0.6]


def test_some_devices_are_numbered_anew():
    links = parse_links(FIGURE_9C)
    some = links.between([3, 0])
    assert some.num_devices == 2 and some.routes == {(0, 1): links.routes[3, 0], (1, 0): links.routes[0, 3]}
    with pytest.raises(InputError, match="has 4 devices, and 5 are needed"):
        links.between(range(5))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0 1", "no devices or no speed"),
        ("@ 1GB/s", "no devices or no speed"),
        ("0 1 @ 32", "the speed '32'"),
        ("0 1 @ 0GB/s", "the speed '0GB/s'"),
        ("0 1 | 2 3 @ 32GB/s", "the speeds '32GB/s'(?s:.*)one for each length of bars: @ 32GB/s | 16GB/s"),
        ("0 1 @ 32GB/s | 16GB/s", "the speeds"),
        ("0 1 || 2 3 @ 32GB/s || 16GB/s", "the speeds"),
        ("0 1 | @ 1GB/s | 1GB/s", "a group without devices"),
        ("0 0 @ 1GB/s", "'0', which is not the number of another device"),
        ("0 a @ 1GB/s", "'a', which is not"),
        ("1 2 @ 1GB/s", "names the devices 1, 2(?s:.*)numbered from 0"),
        ("0 @ 1GB/s", "names the devices 0"),
        ("0 1 @ 1GB/s; 0-2 1GB/s", "joins 0-2 directly"),
        ("0 1 @ 1GB/s; 0>1 1GB/s", "not a direct link"),
        ("0 1 @ 1GB/s; efficiency 1 2", "not shares"),
        ("0 1 @ 1GB/s; efficiency 0.5 0.6", "not shares"),
        ("0 1 @ 1GB/s; efficiency nan", "not shares"),
        ("0 1 @ 1GB/s; efficiency ", "not a direct link"),
    ],
)
def test_mistakes_are_named(text, problem):
    with pytest.raises(InputError, match=problem.replace("|", r"\|")):
        parse_links(text)


def matrix(rows):
    """nvidia-smi's matrix of rows of words."""
    return "\n".join(f"GPU{number} {row} 0-7 0 N/A" for number, row in enumerate(rows))


@pytest.mark.parametrize(
    ("text", "links"),
    [
        (TWO_SWITCHES, "0 1 | 2 3 @ 16GB/s | 16GB/s"),
        (matrix(["X PHB", "PHB X"]), "0 1 @ 16GB/s"),
        (matrix(["X NV12", "NV12 X"]), "0 1 @ 16GB/s; 0-1 300GB/s"),
        (matrix(["X NV18 NV18", "NV18 X NV18", "NV18 NV18 X"]), "0 1 2 @ 450GB/s"),
        (matrix(["X NV6 NV6", "NV6 X NV6", "NV6 NV6 X"]), "0 1 2 @ 16GB/s; 0-1 150GB/s; 0-2 150GB/s; 1-2 150GB/s"),
        (
            matrix(["X PIX NODE SYS SYS", "PIX X NODE SYS SYS", "NODE NODE X SYS SYS", "SYS SYS SYS X PIX", "SYS SYS SYS PIX X"]),
            "0 1 | 2 || 3 4 @ 16GB/s | 16GB/s || 16GB/s",
        ),
        (matrix(["X NV1 SYS", "NV1 X NV2", "SYS NV2 X"]), "0 2 | 1 @ 16GB/s | 16GB/s; 0-1 25GB/s; 1-2 50GB/s"),
    ],
)  # fmt: skip
def test_the_matrix_of_gpus_is_read(text, links):
    found = links_text(parse_matrix(text), 16.0)
    assert found == links and parse_links(found).num_devices > 1


@pytest.mark.parametrize("text", ["", "No devices were found", matrix(["X"]), matrix(["X PIX", "QPI X"])])
def test_a_text_without_such_a_matrix_is_refused(text):
    with pytest.raises(InputError, match=r"nvidia-smi topo -m shows(?s:.*)write them by hand"):
        parse_matrix(text)


class Beside:
    """Ranks of one machine with the GPUs of a text."""

    def __init__(self, gpus):
        self.gpus, self.world = gpus.split(","), len(gpus.split(","))

    def beside(self, value):
        return self.gpus


def test_the_tool_is_asked_for_the_gpus_of_the_ranks(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f'#!/bin/sh\ncase "$1" in topo) printf "%s" "{TWO_SWITCHES}";; *) printf "4, 16\\n4, 8\\n";; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    links = gpu_links(Beside("3,0,2"))
    assert [links.names[link] for link in links.routes[0, 2]] == ["3 out", "2 in"]
    assert [links.names[link] for link in links.routes[1, 0]] == ["0 out", "{0 1}>{2 3}", "3 in"]
    assert links.alone_gbps((0, 1)) == pytest.approx(8 * 1.969)  # the slowest GPU has 8 lanes of the fourth generation
    for gpus in ("0,0", "GPU-1f,1", ","):
        with pytest.raises(InputError, match="one rank for each GPU"):
            gpu_links(Beside(gpus))
    with pytest.raises(InputError, match="has 4 devices, and 6 are needed"):
        gpu_links(Beside("0,5"))
    tool.write_text("#!/bin/sh\necho no driver >&2\nexit 9\n")
    with pytest.raises(InputError, match="topo -m failed: no driver"):
        gpu_links(Beside("0,1"))
