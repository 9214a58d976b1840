"""The links between the GPUs of this machine, as `nvidia-smi topo -m` shows them.

The tool names the kind of way between two GPUs, and no speed. GPUs behind one switch are a group, and so on outwards: PIX one switch, PXB
several, PHB a host bridge, NODE a socket, SYS several sockets. The speed of a GPU's own link follows from generation and width of its PCIe
link; a bridge counts as fast as that. NV4 is a direct link of 4 NVLinks of 25 GB/s each way, or, if all pairs together have more links than
a GPU has, one link to a switch. Rounds depend on routes alone, and not on speeds.

Known limit: of two GPUs with a direct link the tool does not tell the way over PCIe.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from graphmill.kernels import environment
from graphmill.kernels.cuda.driver import VISIBLE
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.group import Ranks
from graphmill.trainers.ranks.links import Interconnect, Pair, parse_links

WAYS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Kinds of ways over PCIe, the shortest first."""
LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""Generation of PCIe -> GB/s of a lane in one direction."""
NVLINK_GBPS, MOST_NVLINKS = 25, 18
REMEDY = 'write them by hand: links = "0 1 | 2 3 @ 32GB/s | 16GB/s"; or set links = "measured"'


def gpu_links(ranks: Ranks) -> Interconnect:
    """Returns the links between the ranks' GPUs; collective. Raises InputError unless one machine has them all and its tool lists them."""
    own = environment.read(VISIBLE)
    places = ranks.beside(own)
    if len(places) < ranks.world or len({*places}) < ranks.world or not all(each.isdecimal() for each in places):
        problem = f'links = "nvml", and the ranks have the GPUs {", ".join(map(repr, places))} on this machine'
        raise InputError(problem, f"start one rank for each GPU of a machine; or {REMEDY}")
    return machine_links().between([int(each) for each in places])


def machine_links() -> Interconnect:
    """Returns the links between all GPUs of this machine; raises InputError if the machine's tool does not list them."""
    ways = parse_matrix(_asked("topo", "-m"))
    speeds = _asked("--query-gpu=pcie.link.gen.max,pcie.link.width.max", "--format=csv,noheader")
    return parse_links(links_text(ways, _pcie_gbps(speeds)))


def parse_matrix(text: str) -> dict[Pair, str]:
    """Returns the kind of way between two GPUs from what `nvidia-smi topo -m` prints; raises InputError if it has no matrix of GPUs."""
    lines = [re.sub(r"\x1b\[\d*m", "", line).split() for line in text.splitlines()]
    rows = {int(line[0][3:]): line[1:] for line in lines if line and re.fullmatch(r"GPU\d+", line[0]) and "X" in line}
    found = {
        (one, other): row[other] for one, row in rows.items() for other in rows if other != one and other < len(row)
    }
    if len(found) != len(rows) * (len(rows) - 1) or not found or sorted(rows) != list(range(len(rows))):
        raise InputError("nvidia-smi topo -m shows no matrix of several GPUs", REMEDY)
    if unknown := sorted({way for way in found.values() if way not in WAYS and not re.fullmatch(r"NV\d+", way)}):
        raise InputError(f"nvidia-smi topo -m shows the way {unknown[0]!r}", REMEDY)
    return found


def links_text(ways: Mapping[Pair, str], pcie_gbps: float) -> str:
    """Returns the links as the key `links` writes them, of the kind of way between two GPUs, and the GB/s of a GPU's PCIe link."""
    devices = sorted({device for pair in ways for device in pair})
    direct = {pair: int(way[2:]) for pair, way in ways.items() if way.startswith("NV")}
    if len(direct) == len(ways) and min(direct.values()) * (len(devices) - 1) > MOST_NVLINKS:
        return f"{' '.join(map(str, devices))} @ {NVLINK_GBPS * min(direct.values())}GB/s"
    speed, kinds = f"{pcie_gbps:g}GB/s", [kind for kind in WAYS if kind in ways.values()]
    groups: list[tuple[set[int], str]] = [({device}, str(device)) for device in devices]
    speeds, level = [speed], 0
    for kind in kinds or [WAYS[-1]]:
        joined = _joined(groups, ways, kind) if kinds else [groups]
        bars = f" {'|' * level} " if level else " "
        groups = [(set().union(*(each for each, _ in group)), bars.join(text for _, text in group)) for group in joined]
        speeds += [f"{'|' * level} {speed}"] if level else []
        level += 1
    if len(groups) > 1:  # groups whose only ways to one another are direct
        groups = [(set(devices), f" {'|' * level} ".join(text for _, text in groups))]
        speeds.append(f"{'|' * level} {speed}")
    clauses = [f"{a}-{b} {NVLINK_GBPS * count}GB/s" for (a, b), count in sorted(direct.items()) if a < b]
    return "; ".join([f"{groups[0][1]} @ {' '.join(speeds)}", *clauses])


def _joined(
    groups: Sequence[tuple[set[int], str]], ways: Mapping[Pair, str], kind: str
) -> list[list[tuple[set[int], str]]]:
    """Returns the groups that a kind of way joins, together."""
    found: list[list[tuple[set[int], str]]] = []
    for group in groups:
        near = [
            others
            for others in found
            if any(ways.get((one, other)) == kind for devices, _ in others for one in devices for other in group[0])
        ]
        found = [others for others in found if others not in near]
        found.append([*(each for others in near for each in others), group])
    return sorted(found, key=lambda group: min(group[0][0]))


def _pcie_gbps(text: str) -> float:
    """Returns the GB/s of the slowest PCIe link, of lines such as "4, 16"."""
    found = [re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", line) for line in text.splitlines() if line.strip()]
    speeds = [LANE_GBPS.get(int(each[1]), 0.0) * int(each[2]) for each in found if each]
    if not speeds or len(speeds) != len(found) or not min(speeds):
        raise InputError(f"nvidia-smi shows the PCIe links {text.strip()!r}", REMEDY)
    return min(speeds)


def _asked(*arguments: str) -> str:
    """Returns the output of nvidia-smi; raises InputError if it is not there, or fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise InputError('links = "nvml", and this machine has no nvidia-smi', REMEDY)
    found = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)
    if found.returncode:
        problem = f"nvidia-smi {' '.join(arguments)} failed: {found.stderr.strip() or found.stdout.strip()}"
        raise InputError(problem, REMEDY)
    return found.stdout
