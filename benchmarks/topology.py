"""Stored samples of a graph whose topology is four times the memory: by passes in the order of nodes, and by random mapped reads.

    python -m benchmarks [--scale S] [--home FOLDER] topology

R-MAT of 16M nodes and about 1G stored edges times the scale, 5/16 without one; one epoch of 1 % of the nodes, batches of 256 seeds,
fan-outs [15, 10, 5]. Both ways run cold in a control group of a quarter of the topology, in drawn order, and must store equal bytes. Told
are the seconds, their ratio, the bytes that each read from the device, and of passes the bytes that direct reads moved. Random reads are
stopped after some minutes; then the ratio is at least what is told.
"""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks.groups import run_limited, told
from benchmarks.limited_home import folder_of
from benchmarks.record import record
from graphmill.assets.building.materialize import materialize
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.samples.config import SamplesConfig, SamplesExecution
from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store

NODES, EDGES, THREADS = 16_000_000, 500_000_000, 2
"""Nodes, and edges before their reverses are added, of scale 1."""
QUICK_SCALE, SCALE = 1 / 50, 5 / 16
LEAST_LIMIT = 304 << 20
"""Memory that a process of Python needs for the smallest passes."""
MAPPED_SECONDS = 900
WAYS = ("sequential", "mapped")


def main(quick: bool, scale: float | None = None, home: Path | None = None) -> None:
    """Builds the graph, draws its samples both ways, compares, prints and records."""
    scale = scale or (QUICK_SCALE if quick else SCALE)
    with folder_of(home, "graphmill-topology-") as home:
        size = {"nodes": round(NODES * scale), "edges": round(EDGES * scale), "features": 1, "labelled": 0.0125}
        semantic = config_class("rmat")(seed=1, train_ratio=0.8, valid_ratio=0.1, **size)
        graph = materialize(Store(home), GRAPH, semantic, GRAPH.Execution(threads=THREADS), {})
        topology = sum(graph.files[f"{each}.npy"]["bytes"] for each in ("indptr", "indices"))
        limit = max(topology // 4, LEAST_LIMIT)
        edges = graph.files["indices.npy"]["shape"][0]
        print(f"{size['nodes']:,} nodes, {edges:,} edges: {format_bytes(topology)}; memory {format_bytes(limit)}")
        rows, digests = {}, {}
        for way in random.Random(0).sample(WAYS, len(WAYS)):
            rows[way] = drawn(home, way, limit)
            found = [each for each in Store(home).artifacts() if each.stage == SAMPLES.name and each.part_of is None]
            if rows[way]["ended"] == "well":
                digests[way] = contents(found[0])
                rows[way] |= {
                    key: found[0].run_record().get(key) for key in ("passes", "groups_by_layer", "topology_read_bytes")
                }
            for stage in (SAMPLES.name, f"{SAMPLES.name}.parts"):
                shutil.rmtree(graph.path.parent.parent / stage, ignore_errors=True)
    report(
        rows, digests, {"scale": "quick" if quick else scale, "nodes": size["nodes"], "edges": edges, "limit": limit}
    )


def drawn(home: Path, way: str, limit: int) -> dict[str, Any]:
    """Draws the samples in a control group. Returns what that took."""
    code = f"from benchmarks.topology import draw; draw({str(home)!r}, {way!r})"
    row = run_limited([sys.executable, "-c", code], home, limit, MAPPED_SECONDS, {"PYTHONPATH": str(ROOT)})
    print(told(way, row), flush=True)
    if row["ended"] == "badly":
        sys.exit(row["said"][-1500:])
    return row


def draw(home: str, way: str) -> None:
    """Is the child process: builds the samples of the home's one graph."""
    store = Store(Path(home))
    (graph,) = [each for each in store.artifacts() if each.stage == GRAPH.name]
    how: dict[str, Any] = {"fanouts": (15, 10, 5), "batch_size": 256, "topology": way, "memory_limit": "64MiB"}
    semantic = SamplesConfig(seed=0, epochs=1, **how)
    materialize(store, SAMPLES, semantic, SamplesExecution(threads=THREADS, workers=1), {"graph": graph})


def contents(samples: Artifact) -> dict[str, str]:
    """Returns the digests of all files of samples and of their parts."""
    artifacts = (samples, *(samples.open_part(name) for name in samples.parts))
    return {f"{each.version}/{name}": facts["digest"] for each in artifacts for name, facts in each.files.items()}


def report(rows: dict[str, dict[str, Any]], digests: dict[str, dict[str, str]], size: dict[str, Any]) -> None:
    """Compares what was stored, prints the ratio and records the row."""
    found = list(digests.values())
    if any(each != found[0] for each in found):
        sys.exit("the ways stored other bytes")
    ratio = rows["mapped"]["seconds"] / rows["sequential"]["seconds"]
    bound = "" if rows["mapped"]["ended"] == "well" else "at least "
    passes, read = rows["sequential"]["passes"], rows["sequential"]["topology_read_bytes"]
    print(f"passes: {passes}, which read {format_bytes(read)}; mapped / sequential = {bound}{ratio:.1f}")
    rows = {way: {name: value for name, value in row.items() if name != "said"} for way, row in rows.items()}
    record("topology", size | {"ratio": round(ratio, 2), "ways": rows}, ("numpy",))
