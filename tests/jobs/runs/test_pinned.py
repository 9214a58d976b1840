"""What a run builds is what was loaded when it was launched; also a look at the internal class that this rests on."""

import inspect

from dagster import Definitions
from dagster._core.code_pointer import CodePointer
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.definitions.reconstruct import (
    initialize_repository_def_from_pointer,
    reconstruct_repository_def_from_pointer,
)

from graphmill.assets.storage.names.home import ROOT
from graphmill.jobs.runs.pinned import KEY, pinned_files
from tests.recipes import write_tiny


def test_the_internal_class_has_what_is_used_of_it():
    assert list(inspect.signature(DefinitionsLoadContext.add_to_pending_reconstruction_metadata).parameters) == [
        "self",
        "key",
        "metadata",
    ]
    assert {member.name for member in DefinitionsLoadType} == {"INITIALIZATION", "RECONSTRUCTION"}
    assert hasattr(DefinitionsLoadContext, "reconstruction_metadata")
    assert not hasattr(Definitions, "reconstruction_metadata"), "there may be a public way now: use it"


def test_a_process_of_a_run_sees_the_files_as_they_were(tmp_path, monkeypatch):
    """The way of a launched run: the code server initialises, a run's processes reconstruct from what it remembers."""
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))
    path = write_tiny(tmp_path)
    pointer = CodePointer.from_python_file(str(ROOT / "jobs" / "definitions.py"), "defs", str(ROOT))
    previous = DefinitionsLoadContext._instance
    try:
        loaded = initialize_repository_def_from_pointer(pointer)
        write_tiny(tmp_path, nodes="300 -> 999")
        write_tiny(tmp_path, "late")
        again = reconstruct_repository_def_from_pointer(pointer, loaded.repository_load_data)
        fresh = initialize_repository_def_from_pointer(pointer)
        path.unlink()
        gone = reconstruct_repository_def_from_pointer(pointer, loaded.repository_load_data)
    finally:
        DefinitionsLoadContext.set(previous)  # pyright: ignore[reportArgumentType]

    def versions(repository):
        graph = repository.asset_graph
        return {key.to_user_string(): graph.get(key).code_version for key in graph.get_all_asset_keys()}

    assert versions(loaded)["tiny/graph"] == versions(again)["tiny/graph"] == versions(gone)["tiny/graph"]
    assert versions(fresh)["tiny/graph"] != versions(again)["tiny/graph"]
    assert "late/graph" not in versions(again) and "late/graph" in versions(fresh)


def test_content_that_is_no_text_survives(tmp_path):
    data = bytes(range(256))
    previous = DefinitionsLoadContext._instance
    try:
        DefinitionsLoadContext.set(DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION))
        assert pinned_files(lambda: {tmp_path: data}) == {tmp_path: data}
        kept = DefinitionsLoadContext.get().get_pending_reconstruction_metadata()
        assert set(kept) == {KEY}
        from dagster._core.definitions.repository_definition import RepositoryLoadData

        again = RepositoryLoadData(cacheable_asset_data={}, reconstruction_metadata=kept)
        DefinitionsLoadContext.set(DefinitionsLoadContext(DefinitionsLoadType.RECONSTRUCTION, again))
        assert pinned_files(dict) == {tmp_path: data}
    finally:
        DefinitionsLoadContext.set(previous)  # pyright: ignore[reportArgumentType]
