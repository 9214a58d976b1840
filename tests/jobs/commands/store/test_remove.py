"""`graphmill rm`: named models and trials go with their checkpoints; data, asked-for models and models in use stay."""

import pytest
from click.testing import CliRunner

from graphmill.assets.storage.store import Store
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.store.remove import remove_models
from graphmill.kernels.errors import InputError
from tests.adversary.house import said
from tests.assets.storage.tiny_artifacts import address, present, put

RECIPE = """
name = "house"
[graph]
source = "sbm"
nodes = 120
edges = 400
features = 4
classes = 3
[sampling]
fanouts = [3]
batch_size = 64
[[train]]
name = "sage"
model = "sage"
layers = 1
epochs = 1
seeds = [1, 2]
"""


def rm(home, *words):
    done = CliRunner().invoke(graphmill, ["--home", str(home), "rm", *words])
    if isinstance(done.exception, InputError):
        raise done.exception
    return done


@pytest.fixture
def store(tmp_path):
    """Two models of one graph, the first with a checkpoint."""
    store = Store(tmp_path / "home")
    graph = put(store, "graph", 1)
    models = [put(store, "model", number, [graph], seed=number, train={}) for number in (1, 2)]
    (store.home / "checkpoints").mkdir()
    (store.home / "checkpoints" / f"{models[0].version}.safetensors").write_bytes(b"12345")
    return store, graph, models


def test_a_named_model_goes_with_its_checkpoint(store):
    store, graph, (first, second) = store
    before = present(store)
    shown = rm(store.home, first.version[:12], "--dry-run").output
    assert "named as" in shown and "2 to remove" in shown and present(store) == before
    assert "freed" in rm(store.home, f"model/{first.version[:12]}", "--yes").output
    assert present(store) == {address(graph), address(second)}
    assert not list((store.home / "checkpoints").iterdir())


def test_data_and_unknown_names_are_refused_and_models_in_use_stay(store):
    store, graph, (first, _) = store
    before = present(store)
    with pytest.raises(InputError, match=r"models may have been trained on it"):
        rm(store.home, graph.version[:12], "--yes")
    with pytest.raises(InputError, match="no artifact"):
        rm(store.home, "0123456789", "--yes")
    with pytest.raises(InputError, match="nobody answered"):
        rm(store.home, first.version[:12])
    assert rm(store.home).exit_code == 2
    with store.lease(address(first)):
        assert "a running job uses it" in rm(store.home, first.version[:12], "--yes").output
    assert present(store) == before
    remove_models(store, {address(first): "named"}, yes=True)
    assert address(first) not in present(store)


def test_trials_of_a_pipeline_go_and_what_its_file_asks_for_stays(tmp_path):
    (tmp_path / "house.toml").write_text(RECIPE)
    (tmp_path / "house").mkdir()
    house = tmp_path / "house"
    said(tmp_path, house, "run", "RECIPE")
    store = Store(house / "home")
    asked = present(store)
    said(tmp_path, house, "train", "RECIPE", "--set", "train.lr=0.2")
    tried = present(store) - asked
    assert len(tried) == 2 and {stage for stage, _ in tried} == {"model"}
    told = said(tmp_path, house, "rm", "--trials", "RECIPE", "--yes")
    assert "house.toml does not ask for it" in told and present(store) == asked
    assert "0 to remove" in said(tmp_path, house, "rm", "--trials", "RECIPE", "--yes")
    told = said(tmp_path, house, "rm", "RECIPE/sage/2", "--yes")
    assert "1 to remove" in told or "2 to remove" in told
    assert len(present(store)) == len(asked) - 1
