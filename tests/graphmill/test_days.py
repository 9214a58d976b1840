"""A graph for each day, as docs/dagster.md makes them, in one run with a wrong day; and why assets of a pipeline are not partitioned."""

from pathlib import Path

import dagster as dg
import numpy as np
import polars
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from tests.docs.pages import ROOT, fences
from tests.graphmill.test_component import project as project
from tests.graphmill.test_component import run

DAYS = 30


def write_days(project: Path, num_days: int = DAYS) -> list[str]:
    """Writes the files of the page, with tables in the project's folder `lake`; returns the first days."""
    texts = [each.text for each in fences(ROOT / "docs" / "dagster.md")]
    folder = project / "shop/defs/days"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for text in texts:
        if text.startswith("# This is "):
            path = project / text.partition("\n")[0].removeprefix("# This is ").removesuffix(".")
            path.write_text(text.replace("/lake", str(project / "lake")))
    (loop,) = [each for each in texts if "range(30)" in each]
    exec(loop, {})  # it is the page's own text
    for path in sorted(folder.glob("*.toml"))[num_days:]:
        path.unlink()
    days = sorted(path.stem.removeprefix("day-") for path in folder.glob("*.toml"))
    for number, day in enumerate(days):
        write_tables(project / "lake" / day, 40 + number)
    return days


def write_tables(folder: Path, num_nodes: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ids = np.arange(num_nodes)
    polars.DataFrame({"id": ids, "kind": ids % 3, "f0": ids / 7}).write_parquet(folder / "nodes.parquet")
    polars.DataFrame({"src": ids, "dst": ids[::-1]}).write_parquet(folder / "edges.parquet")


def built(done: dg.ExecuteInProcessResult) -> dict[str, bool]:
    """Returns day -> whether its graph was reused."""
    return {
        each.asset_key.path[0].removeprefix("day-"): bool(each.materialization.metadata["reused"].value)
        for each in done.get_asset_materialization_events()
        if each.asset_key is not None and each.asset_key.path[-1] == "graph"
    }


def messages(done: dg.ExecuteInProcessResult) -> list[str]:
    failed = [event.step_failure_data for event in done.all_events if event.is_step_failure]
    return [(each.user_failure_data and each.user_failure_data.description) or str(each.error) for each in failed]


@pytest.mark.parametrize("num_days", [4, pytest.param(DAYS, marks=pytest.mark.slow("thirty days in one run"))])
def test_a_wrong_day_fails_alone_and_the_others_are_not_built_again(project: Path, num_days: int) -> None:
    days = write_days(project, num_days)
    assert len(days) == num_days
    wrong = days[num_days // 2]
    bad = project / "lake" / wrong / "edges.parquet"
    bad.write_bytes(b"PAR1 and nothing else")
    graphs = " or ".join(f'key:"day-{day}/graph"' for day in days)
    with dg.DagsterInstance.ephemeral() as instance:
        first = run(instance, graphs)
        (message,) = messages(first)
        assert str(bad) in message and not first.success
        assert built(first) == dict.fromkeys((day for day in days if day != wrong), False)
        write_tables(bad.parent, 99)
        second = run(instance, graphs)
        assert second.success and built(second) == {day: day != wrong for day in days}


def stale_status(*, partitioned: bool) -> str:
    """Returns what Dagster shows of an asset without a partition after its code version changed."""
    more = {"partitions_def": dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-03")} if partitioned else {}

    def graph_of(version: str) -> dg.AssetsDefinition:
        @dg.asset(code_version=version, **more)
        def graph() -> dg.MaterializeResult:
            return dg.MaterializeResult(data_version=dg.DataVersion("of the artifact"))

        return graph

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize(
            [graph_of("1")], instance=instance, partition_key="2026-01-01" if partitioned else None
        ).success
        after = dg.Definitions(assets=[graph_of("2")]).get_repository_def().asset_graph
        resolver = CachingStaleStatusResolver(instance, after, LoadingContextForTest(instance))
        return resolver.get_status(dg.AssetKey("graph")).name


def test_a_partitioned_asset_is_called_fresh_whatever_has_changed() -> None:
    """The reason on the page: when this fails, Dagster tracks it, and a pipeline could be partitioned."""
    assert stale_status(partitioned=False) == "STALE"
    assert stale_status(partitioned=True) == "FRESH"
