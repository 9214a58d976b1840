"""Law 6 for imports: kill -9 at any line leaves each of the two artifacts whole or absent and, after the next start, no stray file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.assets.sources.own_data import Drawn, edge_frame, node_frame

pytestmark = pytest.mark.first

ROOT = Path(__file__).resolve().parents[2]
NUM_KILLS = 3


@pytest.mark.parametrize(
    "num_kills", [NUM_KILLS, pytest.param(40, marks=pytest.mark.slow("forty kills instead of three in an import"))]
)
def test_kill_at_drawn_lines_of_an_import(tmp_path, num_kills):
    """Text ids, so that every way of spilling is used: staged tables, ids, the spool and its ranges."""
    graph = Drawn()
    names = [f"n{number:03d}" for number in range(graph.num_nodes)]
    edge_frame(graph, np.array(names)).write_csv(tmp_path / "edges.csv")
    node_frame(graph, np.array(names)).write_csv(tmp_path / "nodes.csv")
    keys = {"edges": "edges.csv", "nodes": "nodes.csv", "features": "f*", "label_column": "y", "split_column": "part"}
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.laws.import_child", str(tmp_path), str(num_kills)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["problems"] == [] and report["lines"] > 500
    assert report["absent"] + report["between"] + report["whole"] >= num_kills and report["between"] >= 3
