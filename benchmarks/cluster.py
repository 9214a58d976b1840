"""Samples and packed chunks by nodes of a Ray cluster, beside one node: `python -m benchmarks cluster`.

Nodes of one core each, on this machine: 1, 2, 3. Every artifact is compared with that of one node, file by file, before any time is shown.
The seconds are those of the two stages, from their first part to their index, with the connection to the cluster (3 to 4 s each, in which
every node answers) and without it: with C cores, C nodes are at most C times as fast, and more nodes than cores no faster.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import record
from graphmill.assets.cluster.address import require_ray
from graphmill.assets.cluster.local import local_nodes
from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.storage.store import Store
from graphmill.jobs.launch import Launch, launch
from graphmill.trainers.recipe.config import TrainTable

NODES = (1, 2, 3)
STAGES = ("samples", "packed_chunks")
GRAPH = """
name = "cluster"
[graph]
source = "rmat"
nodes = {nodes}
edges = {edges}
features = 64
[sampling]
fanouts = [10, 5]
batch_size = 500
reuse = {reuse}
"""
SAMPLED = "[samples]\n"
PACKED = """
[samples]
[hotness]
[memory]
device = "8MiB"
host = "16MiB"
disk = "2GiB"
[cache_plan]
[packed]
groups = 12
"""
"""Many epochs are sampled, and one is packed: stored rows take far more of the disk than stored batches."""


def main(quick: bool) -> None:
    """Prints the table and records a row."""
    nodes, edges, epochs = (50_000, 400_000, 3) if quick else (500_000, 5_000_000, 24)
    many, one = (GRAPH.format(nodes=nodes, edges=edges, reuse=reuse) for reuse in (epochs, 1))
    require_ray()
    with tempfile.TemporaryDirectory(prefix="graphmill-") as folder:
        base = Path(folder) / "base"
        _build(one + PACKED.partition("[cache_plan]")[0].replace(SAMPLED, ""), base, "")
        rows: dict[int, dict[str, Any]] = {}
        contents = []
        for count in random.Random(0).sample(NODES, len(NODES)):
            home = Path(folder) / f"nodes-{count}"
            shutil.copytree(base / "store", home / "store", copy_function=os.link)
            with local_nodes(count, num_cpus=1, memory=4 << 30) as cluster:
                _build(many + SAMPLED, home, cluster.address)
                rows[count] = _measured(home, "samples")
                _build(one + PACKED, home, cluster.address)
            rows[count] |= _measured(home, "packed_chunks")
            contents.append(_content(home))
            shutil.rmtree(home)
        assert all(each == contents[0] for each in contents), "the artifacts of different numbers of nodes differ"
    _print(rows)
    size = {"quick": quick, "nodes": nodes, "edges": edges, "epochs": epochs, "cores": os.cpu_count()}
    record("cluster", size | {"by_nodes": {str(count): rows[count] for count in NODES}})


def _build(text: str, home: Path, on: str) -> None:
    pipeline = parse_pipeline(home.parent / "cluster.toml", text.encode(), TrainTable)
    launch(Launch(pipeline=pipeline, selection="preprocess", home=home, on=on, threads=1, report=lambda line: None))


def _measured(home: Path, stage: str) -> dict[str, Any]:
    (whole,) = [each for each in Store(home).artifacts() if each.stage == stage]
    parts = [whole.open_part(name).run_record() for name in whole.parts]
    found = {
        "seconds": whole.run_record()["seconds"],
        "part_seconds": round(sum(part["seconds"] for part in parts), 3),
        "parts": len(parts),
        "nodes": len({part["node"] for part in parts}),
        "bytes": whole.total_bytes,
    }
    return {stage: found}


def _content(home: Path) -> dict[str, str]:
    stages = {stage for name in STAGES for stage in (name, f"{name}.parts")}
    return {each.label: each.content for each in Store(home).artifacts() if each.stage in stages}


def _print(rows: dict[int, dict[str, Any]]) -> None:
    one = rows[1]
    print(
        f"{'stage':<14} {'nodes':>5} {'parts':>5} {'seconds':>8} {'times as fast as one':>21} {'seconds of all parts':>21}"
    )
    for stage in STAGES:
        for count in NODES:
            row = rows[count][stage]
            ratio = one[stage]["seconds"] / row["seconds"]
            print(
                f"{stage:<14} {count:>5} {row['parts']:>5} {row['seconds']:>8.1f} {ratio:>21.2f} {row['part_seconds']:>21.1f}"
            )
