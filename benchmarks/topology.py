"""A graph whose topology is four times the memory: stored samples by passes and by random mapped reads, and a whole pipeline.

    python -m benchmarks [--scale S] [--home FOLDER] [--parts ways,pipeline] topology

R-MAT of 16M nodes and about 1G stored edges times the scale, every command cold in a control group; batches of 256 seeds, 1 % of the
nodes, fan-outs [15, 10, 5].

ways: at scale 5/16 without one, in a quarter of the topology. Both ways draw in drawn order, and must store equal bytes. Told are the
seconds, their ratio, and the bytes that each read from the device; of passes also those of the touched blocks, which direct reads move,
and of the drawn edges that waited on disk, which are read back once for each layer below them. Random reads are stopped after some minutes;
then the ratio is at least what is told.

pipeline: at scale 1 without one, in 1 GiB: graph, samples, hotness, partitions, packed rows, a training of `disk` that evaluates from
packed rows, and predictions. Told is the memory of each that the kernel cannot take back, beside what the formulas said; one that takes
more fails.
"""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.groups import run_limited, told
from benchmarks.limited_home import LimitedHome, folder_of
from benchmarks.record import record
from graphmill.assets.building.materialize import materialize
from graphmill.assets.costs.needs import COMMAND_BYTES
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.samples.config import SamplesConfig, SamplesExecution
from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.sampling.passes import FACTS
from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store

NODES, EDGES, THREADS = 16_000_000, 500_000_000, 2
"""Nodes, and edges before their reverses are added, of scale 1."""
QUICK_SCALE, SCALES = 1 / 50, {"ways": 5 / 16, "pipeline": 1}
LEAST_LIMIT, PIPELINE_LIMIT = 304 << 20, 1 << 30
"""Memory that a process of Python needs for the smallest passes; memory of the pipeline's commands."""
MAPPED_SECONDS = 900
WAYS = ("sequential", "mapped")
STAGES = {
    "graph": """
[graph]
source = "rmat"
nodes = {nodes}
edges = {edges}
features = 16
classes = 16
labelled = 0.0125
train_ratio = 0.8
valid_ratio = 0.1
[features]
dtype = "float16"
""",
    "samples": """
[sampling]
fanouts = [15, 10, 5]
batch_size = 256
reuse = 1
topology = "sequential"
[samples]
evaluate = true
""",
    "hotness": '[hotness]\npolicy = "presample"\n',
    "partitions": '[partitions]\nmethod = "ldg"\nparts = 2\n',
    "packed_chunks": '[memory]\ndevice = "3%"\nhost = "6%"\ndisk = "20x"\n[cache_plan]\n[packed]\ngroups = 4\n',
    "train": """
[[train]]
name = "disk"
trainer = "disk"
layers = 3
hidden = 32
epochs = 1
eval = "sampled"
queue = "64MiB"
""",
}
"""Part -> what it adds to the pipeline file."""
PREDICTED = 10_000


def main(
    quick: bool, scale: float | None = None, home: Path | None = None, parts: tuple[str, ...] | None = None
) -> None:
    """Measures the parts, prints and records."""
    parts = parts or tuple(SCALES)
    assert set(parts) <= set(SCALES), f"parts are {', '.join(SCALES)}"
    for part in parts:
        with folder_of(home and home / part, f"graphmill-topology-{part}-") as folder:
            size = scale or (QUICK_SCALE if quick else SCALES[part])
            told_as = "quick" if quick else size
            (ways if part == "ways" else pipeline)(folder, size, told_as)


def pipeline(folder: Path, scale: float, told_as: str | float) -> None:
    """Builds, trains and predicts in a group, compares memory with the formulas, and records."""
    size = {"nodes": round(NODES * scale), "edges": round(EDGES * scale)}
    limited = LimitedHome(folder, PIPELINE_LIMIT)
    limited.build("topology", {part: text.format(**size) for part, text in STAGES.items()}, tuple(STAGES)[:-1])
    limited.command("disk", "train", "train.toml", "disk")
    ids = np.sort(np.random.default_rng(0).choice(size["nodes"], PREDICTED, False))
    (folder / "ids.txt").write_text("\n".join(map(str, ids.tolist())))
    options = ("--nodes", "ids.txt", "--out", "predicted.parquet", "--workspace", "256MiB")
    limited.command("predict", "predict", "train.toml", "disk", *options)
    rows, said = limited.rows(), formulas(limited.store)
    for part, row in rows.items():
        beside = f", {format_bytes(said[part])} by formula" if part in said else ""
        print(f"{part}: ended {row['ended']}, {format_bytes(row['anonymous_bytes'])} held{beside}")
    passes = {name: run_facts(limited.artifact(name)) for name in ("samples", "hotness")}
    row: dict[str, Any] = {"scale": told_as, "size": size, "limit": PIPELINE_LIMIT, "passes": passes, "said": said}
    record("topology_pipeline", row | {"commands": rows, "stages": limited.stages()}, ("torch", "numpy"))
    failed = [part for part, row in rows.items() if row["ended"] != "well"]
    failed += [part for part, most in said.items() if rows[part]["anonymous_bytes"] > most]
    if failed:
        sys.exit(f"not ended well, or more memory than the formula says: {', '.join(failed)}")


def formulas(store: Store) -> dict[str, int]:
    """Returns part -> bytes that were said before it began, with those of the command that waits for it."""
    found = {}
    for each in store.artifacts():
        record = each.run_record()
        most = record.get("memory_need", record.get("work", {}))
        if each.part_of is None and (most := most.get("bytes", most.get("memory_bytes"))):
            found["disk" if each.stage == "model" else each.stage] = most + COMMAND_BYTES
    return {part: most for part, most in found.items() if part in (*STAGES, "disk")}


def run_facts(artifact: Artifact) -> dict[str, Any]:
    """Returns the facts about the passes that built an artifact."""
    facts = artifact.run_record()
    return {key: facts.get(key) for key in FACTS}


def ways(home: Path, scale: float, told_as: str | float) -> None:
    """Builds the graph, draws its samples both ways, compares, prints and records."""
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
            rows[way] |= run_facts(found[0])
        for stage in (SAMPLES.name, f"{SAMPLES.name}.parts"):
            shutil.rmtree(graph.path.parent.parent / stage, ignore_errors=True)
    report(rows, digests, {"scale": told_as, "nodes": size["nodes"], "edges": edges, "limit": limit})


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
    """Compares what was stored, prints the ratios and records the row."""
    found = list(digests.values())
    if any(each != found[0] for each in found):
        sys.exit("the ways stored other bytes")
    ratio = rows["mapped"]["seconds"] / rows["sequential"]["seconds"]
    bound = "" if rows["mapped"]["ended"] == "well" else "at least "
    row = rows["sequential"]
    read, back, all_read = row["topology_read_bytes"], row["spill_read_bytes"], row["read_bytes"]
    speed = read / row["pass_seconds"]
    print(f"passes: {row['passes']}, which read {format_bytes(read)} of edges, {speed / 1e6:.0f} MB/s")
    print(
        f"drawn edges: {format_bytes(row['spilled_bytes'])} written, {format_bytes(back)} read, also from the page cache"
    )
    print(
        f"from the device / of passes = {all_read / read:.3f}, with at least {max(0, all_read - read - back) / read:.3f} of neither"
    )
    print(f"mapped / sequential = {bound}{ratio:.1f}")
    rows = {way: {name: value for name, value in row.items() if name != "said"} for way, row in rows.items()}
    record("topology", size | {"ratio": round(ratio, 2), "ways": rows}, ("numpy",))
