"""Nodes on this machine leave the file alone by which `auto` finds a cluster that others have started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.assets.storage.names.home import ROOT

pytestmark = pytest.mark.first

NODES = """
from graphmill.assets.cluster.local import local_nodes

with local_nodes(1, num_cpus=1) as cluster:
    print(bool(cluster.address))
"""


@pytest.mark.parametrize("known", [False, True], ids=["no folder", "another cluster"])
def test_nodes_need_no_folder_of_rays_and_keep_the_address_of_another_cluster(tmp_path: Path, known: bool) -> None:
    address = tmp_path / "ray" / "ray_current_cluster"
    if known:
        address.parent.mkdir()
        address.write_text("10.0.0.7:6379")
    environment = os.environ | {"RAY_TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", NODES],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.split() == ["True"], done.stderr
    assert address.read_text() == "10.0.0.7:6379" if known else not address.exists()
