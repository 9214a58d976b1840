"""Tables of assets of a user's project: whatever an IO manager loads is kept as the same table, or refused."""

from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest

from graphmill.assets.sources.edges.asset import AssetConfig, keep_table
from graphmill.assets.storage.names.upstream import asset_named, asset_table
from graphmill.kernels.errors import InputError

FRAME = polars.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 0], "at": ["a", None, "c"]})


class Streams:
    """Something that streams Arrow, and is no frame of Polars."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return FRAME.__arrow_c_stream__(requested_schema)


def _written(folder: Path, form: str) -> Path:
    path = folder / f"given.{form}"
    FRAME.write_csv(path) if form == "csv" else FRAME.write_parquet(path)
    return path


@pytest.mark.parametrize("form", ["frame", "lazy", "relation", "stream", "chunks", "parquet", "csv", "text"])
def test_all_kinds_of_tables_are_kept_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path / "home"))
    given: dict[str, Any] = {
        "frame": FRAME,
        "lazy": FRAME.lazy(),
        "relation": duckdb.read_parquet(str(_written(tmp_path, "parquet"))),
        "stream": Streams(),
        "chunks": polars.concat([FRAME.head(1), FRAME.tail(2)], rechunk=False),
        "parquet": _written(tmp_path, "parquet"),
        "csv": _written(tmp_path, "csv"),
        "text": str(_written(tmp_path, "parquet")),
    }
    keep_table("shop/edges", FRAME, path := asset_table("shop/edges"))
    config = AssetConfig(edges=path, source_column="src", target_column="at")
    digests = config.raw(None)
    keep_table("shop/edges", given[form], path)
    assert polars.read_parquet(path).equals(FRAME) and config.raw(None) == digests
    keep_table("shop/edges", FRAME.head(1), path)
    assert len(polars.read_parquet(path)) == 1 and [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("value", [None, 3, {"src": [1]}])
def test_other_values_are_refused_and_change_nothing(tmp_path: Path, value: object) -> None:
    path = tmp_path / "upstream" / "edges.parquet"
    keep_table("edges", FRAME, path)
    with pytest.raises(InputError, match=f"the asset edges was loaded as {type(value).__name__}"):
        keep_table("edges", value, path)
    assert polars.read_parquet(path).equals(FRAME)


@pytest.mark.parametrize("key", ["edges", "shop/edges", "a.b/c d/*[x]?", "upstream/%2F"])
def test_every_key_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path))
    path = asset_table(key)
    assert path.parent == tmp_path / "upstream" and asset_named(path) == key
    with pytest.raises(InputError, match="no run has loaded this asset"):
        AssetConfig(edges=path).raw(None)
    keep_table(key, FRAME, path)
    assert len(AssetConfig(edges=path).raw(None)) == 1


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("named", ["parts", "parts/part.*", "days"])
def test_parts_of_a_table_are_kept_in_the_order_of_their_numbers(tmp_path: Path, form: str, named: str) -> None:
    for number in range(12):
        folder = tmp_path / "days" / f"day={number}" if named == "days" else tmp_path / "parts"
        folder.mkdir(parents=True, exist_ok=True)
        frame, path = polars.DataFrame({"src": [number], "dst": [number]}), folder / f"part.{number}.{form}"
        frame.write_csv(path) if form == "csv" else frame.write_parquet(path)
    keep_table("edges", tmp_path / named, path := tmp_path / "upstream" / "edges.parquet")
    assert polars.read_parquet(path)["src"].to_list() == [*range(12)]
