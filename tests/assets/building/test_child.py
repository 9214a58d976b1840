"""Processes that end with the one that started them."""

import subprocess
import sys

import pytest

from assets.building.child import child_environment


@pytest.mark.parametrize("module", ["assets.partitions.metis_child", "assets.sources.dgl.reader"])
def test_a_child_whose_parent_is_gone_before_it_begins_ends(module):
    """It is told who started it; here that is not so. Beyond that look it would fail with a traceback: nothing else is given."""
    # Process 0 is nobody's parent.
    ended = subprocess.run(
        [sys.executable, "-m", module, "0"], env=child_environment(), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "")
