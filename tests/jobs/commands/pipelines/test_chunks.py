"""`graphmill chunks`: the volumes of every schedule and their cost by equation 4."""

import json

import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.chunks.config import ChunksTable, chunks_config
from graphmill.assets.chunks.stage import CHUNKS
from graphmill.assets.partitions.config import PartitionsTable, partitions_config
from graphmill.assets.partitions.stage import PARTITIONS
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.pipelines.chunks import print_chunks
from graphmill.kernels.chunks.counts import cost
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.assets.sources.own_data import build_config
from tests.recipes import load_tiny, write_tiny

TABLES = '[partitions]\nmethod = "range"\nparts = 2\n\n[chunks]\nchunks_per_part = 3\n\n[sampling]\n'
RATES = "1GB/s,10GB/s,100GB/s"


def printed(home, pipeline, capsys, *, rates=RATES, row_bytes=100, again=False, as_json=True):
    print_chunks(home, pipeline, rates=rates, row_bytes=row_bytes, again=again, as_json=as_json)
    shown = capsys.readouterr().out
    return json.loads(shown) if as_json else shown


def test_costs_follow_from_stored_volumes_and_given_or_measured_rates(tmp_path, capsys):
    home, path = tmp_path / "home", write_tiny(tmp_path)
    path.write_text(path.read_text().replace("[sampling]\n", TABLES))
    pipeline = load_pipeline(path, TrainTable)
    with pytest.raises(InputError, match=r"chunks are not built(?s:.*)graphmill build"):
        printed(home, pipeline, capsys)
    graph = build_config(home, pipeline.graph, threads=1).graph
    parts = partitions_config(PartitionsTable(method="range", parts=2), pipeline.seed)
    inputs = {
        "graph": graph,
        "partitions": materialize(Store(home), PARTITIONS, parts, Threads(threads=1), {"graph": graph}),
    }
    config = chunks_config(ChunksTable(chunks_per_part=3), pipeline.seed)
    stored = materialize(Store(home), CHUNKS, config, Threads(threads=1), inputs).summary["numbers"]
    found = printed(home, pipeline, capsys)
    assert {row["schedule"] for row in found["schedules"]} >= {"identity", "hongtu", stored["schedule"]}
    for row in found["schedules"]:
        assert row["seconds"] == pytest.approx(cost(row["v_ori"], row["v_p2p"], row["v_ru"], (1e7, 1e8, 1e9)))
    (chosen,) = (row for row in found["schedules"] if row["schedule"] == found["chosen"])
    assert chosen["v_ru"] == stored["v_ru"] and not (home / "measured" / "links.json").exists()
    shown = printed(home, pipeline, capsys, as_json=False)
    assert f"* {found['chosen']}" in shown and f"{chosen['seconds'] * 1e3:.3f} ms" in shown
    measured = [printed(home, pipeline, capsys, rates=None)["rates"] for _ in range(2)]
    assert measured[0] == measured[1] and (home / "measured" / "links.json").exists()


def test_what_is_missing_or_wrong_is_named(tmp_path, capsys):
    with pytest.raises(InputError, match=r"has no table \[chunks\]"):
        printed(tmp_path, load_tiny(tmp_path), capsys)
    with pytest.raises(InputError, match="rows of 0 bytes"):
        printed(tmp_path, load_tiny(tmp_path), capsys, row_bytes=0)
