"""Writes the texts anew: `python -m tests.golden`. Every line that changes is to be explained where it is committed."""

import tempfile
from pathlib import Path

from tests.golden.costs import FOLDER, cluster_text, graph_text
from tests.golden.recipes import texts

for name, text in texts().items():
    with tempfile.TemporaryDirectory(prefix="graphmill-golden-") as folder:
        (FOLDER / f"{name}.txt").write_text(graph_text(name, text, Path(folder)))
(FOLDER / "cluster.txt").write_text(cluster_text())
