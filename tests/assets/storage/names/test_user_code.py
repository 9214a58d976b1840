"""References to a user's own code: where modules are found, what enters the version, and what the messages say."""

import copy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.files.digests import code_digests
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.names.user_code import Reference, find_source, load_reference
from graphmill.assets.storage.names.version import canonical, locations
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable

PIPELINE = """
[graph]
source = "sbm"
nodes = 100
edges = 500
features = 4
classes = 2
[sampling]
fanouts = [2, 2]
method = "{method}"
[[train]]
name = "x"
model = "{model}"
"""


def test_finding_a_module_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "ref_pack" / "inner").mkdir(parents=True)
    (tmp_path / "ref_pack" / "__init__.py").write_text("raise SystemExit")
    (tmp_path / "ref_pack" / "inner" / "deep.py").write_text("raise SystemExit")
    found = find_source(Reference("ref_pack.inner.deep:Thing", tmp_path))
    assert found == tmp_path / "ref_pack" / "inner" / "deep.py"
    assert not any(name.startswith("ref_pack") for name in sys.modules)


def test_threads_may_look_for_modules_at_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: find_source(Reference("mine:x", tmp_path)), range(400)))
    finally:
        sys.setswitchinterval(before)
    assert set(found) == {tmp_path / "mine.py"}


def test_the_python_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("path", "beside"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ref_twice.py").write_text(f"where = '{folder}'\nclass Outer:\n    inner = 5")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert find_source(Reference("ref_twice:where", tmp_path / "beside")).parent.name == "beside"
    monkeypatch.syspath_prepend(tmp_path / "path")
    assert load_reference(Reference("ref_twice:where", tmp_path / "beside")) == "path"
    assert load_reference("ref_twice:Outer.inner") == 5


@pytest.mark.parametrize(
    ("imports", "remedy"),
    [("torch_geometric.nn", '.[pyg]"'), ("dgl", '.[dgl]"'), ("ref_no_such", "correct the module")],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imports: str, remedy: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [each for each in sys.modules if each.partition(".")[0] == imports.partition(".")[0]]:
        monkeypatch.delitem(sys.modules, name)

    class Missing:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == imports.partition(".")[0]:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    module = f"ref_needs_{imports.partition('.')[0]}"
    (tmp_path / f"{module}.py").write_text(f"import {imports}\nvalue = 3")
    with pytest.raises(InputError, match=f"importing .*{module}.py failed: ModuleNotFoundError") as error:
        load_reference(Reference(f"{module}:value", tmp_path))
    assert remedy in error.value.remedy


@pytest.mark.parametrize("layer", ["assets", "jobs", "kernels", "trainers"])
@pytest.mark.parametrize("seen", [True, False], ids=["in a clone", "installed"])
def test_a_layer_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layer: str, seen: bool) -> None:
    """A clone has folders of these names on Python's path: their modules would be loaded a second time, with classes of their own."""
    found = [path for path in sys.path if Path(path or ".").resolve() != ROOT]
    monkeypatch.setattr(sys, "path", [*found, str(ROOT)] if seen else found)
    monkeypatch.chdir(tmp_path)
    module = f"ref_from_{layer}_{seen}"
    (tmp_path / f"{module}.py").write_text(f"from {layer} import errors\nvalue = 3")
    with pytest.raises(InputError, match=f"importing .*{module}.py failed") as error:
        load_reference(Reference(f"{module}:value", tmp_path))
    assert f"import graphmill.{layer}" in error.value.remedy
    assert layer not in sys.modules


def test_a_module_finds_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "ref_part.py").write_text("value = 3")
    (tmp_path / "ref_whole.py").write_text("from ref_part import value")
    assert load_reference(Reference("ref_whole:value", tmp_path)) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ref_none:x", "no module ref_none on Python's path and in"),
        ("json:", "not of the form"),
        ("a b:c", "not of the form"),
        ("ref_bad:x", "importing .*ref_bad.py failed: ZeroDivisionError"),
        ("ref_good:absent", "has no absent\n  remedy: it has present"),
        ("sys:path", "no module sys"),
    ],
)
def test_what_cannot_be_loaded_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "ref_bad.py").write_text("1 / 0")
    (tmp_path / "ref_good.py").write_text("present = 1")
    with pytest.raises(InputError, match=message):
        load_reference(Reference(text, tmp_path))


def test_a_name_that_is_loaded_from_elsewhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ref_same.py").write_text("value = 1")
    load_reference(Reference("ref_same:value", tmp_path / "one"))
    sys.path.remove(str(tmp_path / "one"))
    with pytest.raises(InputError, match=r"means .*two.*, but a module ref_same is loaded from .*one"):
        load_reference(Reference("ref_same:value", tmp_path / "two"))


def test_only_text_and_content_are_hashed(tmp_path: Path) -> None:
    (tmp_path / "ref_hash.py").write_text("a = 1")
    reference = Reference("ref_hash:a", tmp_path)
    config = SamplingConfig(fanouts=(2,), method=reference)
    assert canonical(config)["method"] == "ref_hash:a" and locations(config) == {"method": str(tmp_path)}
    assert copy.deepcopy(reference).folder == tmp_path
    before = code_digests({"sampling": reference, "model": "sage"})
    assert set(before) == {"sampling"}
    (tmp_path / "ref_hash.py").write_text("a = 2 ")
    assert code_digests({"sampling": reference}) != before


def test_a_pipeline_file_carries_its_folder(tmp_path: Path) -> None:
    (tmp_path / "ref_mine.py").write_text("")
    path = tmp_path / "mine.toml"
    path.write_text(PIPELINE.format(method="ref_mine:f", model="ref_mine:M"))
    pipeline = load_pipeline(path, TrainTable)
    assert pipeline.sampling is not None
    assert pipeline.sampling.method.folder == pipeline.train[0].config.model.folder == tmp_path  # pyright: ignore


def test_mistakes_stand_at_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PIPELINE.format(method="unifrm", model="ref_nowhere:M"))
    with pytest.raises(InputError) as error:
        load_pipeline(path, TrainTable)
    assert '10: method = "unifrm" is not one of uniform, weighted, random_walk (did you mean uniform?)' in str(
        error.value
    )
    assert '13: model = "ref_nowhere:M": there is no module ref_nowhere on Python\'s path and in' in str(error.value)
