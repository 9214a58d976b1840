"""Files of every form in every role, drawn: what is sound gives the drawn graph, and everything else is refused by one message."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.graph.read import open_graph
from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.jobs.commands.pipelines.inspect_pipeline import survey_pipeline
from graphmill.kernels.errors import InputError
from tests.adversary.files import LIBRARY, Drawn, drawn_files
from tests.assets.sources.own_data import build_config

pytestmark = pytest.mark.usefixtures("quick_readers")


def refused(work, drawn: Drawn) -> bool:
    """Tells whether something is refused, after a look at the message."""
    try:
        work()
    except InputError as error:
        said = str(error)
        assert not LIBRARY.search(re.sub(r'python -c ".*?"', "", said)), f"{drawn.damage}: {said}"
        assert error.remedy and error.problem and len(said) < 20_000, f"{drawn.damage}: {said}"
        return True
    return False


def check(seed: int, folder: Path) -> None:
    """Draws files, surveys them and builds their graph."""
    drawn = drawn_files(random.Random(seed), folder)
    pipeline = parse_pipeline(folder / "drawn.toml", drawn.text.encode())
    lines: list[str] = []
    surveyed = refused(lambda: lines.extend(survey_pipeline(pipeline).lines()), drawn)
    assert not LIBRARY.search("\n".join(lines)), f"{drawn.damage}: {lines}"
    found = []
    features = pipeline.tables["features"].main if "features" in pipeline.tables else None
    built = not refused(
        lambda: found.append(build_config(folder / "home", pipeline.graph, threads=1, table=features)), drawn
    )
    assert built or not drawn.sound, drawn.damage
    assert surveyed or built or any("cannot be built" in line for line in lines), f"{drawn.damage}: inspect says yes"
    if built:
        assert not surveyed, f"{drawn.damage}: inspect refuses what is built"
    if drawn.sound:
        graph, (made,) = open_graph(found[0].graph), found
        assert graph.topology.num_edges == len(drawn.edges), drawn.damage
        assert graph.labels.tolist() == drawn.y.tolist(), drawn.damage
        assert np.array_equal(np.load(made.features.path / "rows.npy"), drawn.x), drawn.damage


@pytest.mark.parametrize("seed", range(24))
def test_drawn_files(tmp_path: Path, seed: int) -> None:
    check(seed, tmp_path)
