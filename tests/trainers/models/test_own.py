"""A user's own models and sampling functions: the documented examples run, repeat themselves, and mistakes are explained."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.user_code import Reference
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.own_sampling import OwnSampler
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Stream
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import OwnModule, require_layers
from graphmill.trainers.recipe.config import TrainConfig, TrainTable
from graphmill.trainers.rows.source import MemorySource
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config
from tests.kernels.graphs import assert_same_blocks
from tests.trainers.graphs import random_graph, random_topology
from tests.trainers.inference.infer import infer_exact
from tests.trainers.runs import SAMPLING, content, train_fresh, train_parts, train_small, train_whole

TEXT = (Path(__file__).parents[3] / "docs" / "own-models.md").read_text()
EXAMPLES = re.findall(r"```python\n# (\w+)\.py\n(.*?)```.*?```toml\n(.*?)```", TEXT, re.DOTALL)
WIDE = """
from torch import nn
from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.sage import SageLayer

def wide(in_width, num_classes, config):
    return [SageLayer(in_width, {width}, LayerOptions()), SageLayer({width}, num_classes, LayerOptions(last=True))]

def shallow(in_width, num_classes, config):
    return [SageLayer(in_width, num_classes, LayerOptions(last=True))]

def halved(in_width, num_classes, config):
    return [nn.Linear(in_width, 4), SageLayer(4, num_classes, LayerOptions(last=True))]

def broken(in_width, num_classes, config):
    return nn.Linear(in_width, config.hiden)

def nothing(in_width, num_classes, config):
    pass

class Plain(nn.Module):
    def __init__(self, in_width, num_classes, config):
        super().__init__()
        self.linear, self.dropout = nn.Linear(in_width, num_classes), nn.Dropout(0.5)
    def forward(self, blocks, x):
        return self.linear(self.dropout(x))[: blocks[-1].num_dst_nodes()]

class Loose(Plain):
    def forward(self, blocks, x):
        return self.linear(x)
"""


def written(folder: Path, name: str, text: str = WIDE.replace("{width}", "6")) -> Path:
    """Writes a module of a name of its own, since Python loads a module once."""
    (folder / f"{name}.py").write_text(text)
    return folder


def trained(folder: Path, home: Path, **execution: Any) -> Artifact:
    pipeline = load_pipeline(folder / "mine.toml", TrainTable)
    store = Store(home)
    built = build_config(store.home, pipeline.graph, threads=1)
    assert pipeline.sampling is not None
    (table,) = pipeline.train
    table = TrainTable(**{name: getattr(table, name) for name in TrainTable.__dataclass_fields__} | execution)
    return train_table(store, built.inputs, table, pipeline.sampling, pipeline.seed, report=lambda line: None)[0]


def test_there_is_an_example_of_each_form() -> None:
    assert [name for name, _, _ in EXAMPLES] == ["maxpool", "whole", "over_graph", "over_dgl", "over_pyg", "hubs"]


@pytest.mark.parametrize(("name", "code", "toml"), EXAMPLES, ids=[name for name, _, _ in EXAMPLES])
def test_the_documented_examples_run_and_repeat_themselves(tmp_path: Path, name: str, code: str, toml: str) -> None:
    for library in ("dgl", "torch_geometric"):
        if library in code:
            pytest.importorskip(library)
    (tmp_path / f"{name}.py").write_text(code)
    (tmp_path / "mine.toml").write_text(toml)
    first = trained(tmp_path, tmp_path / "a", samplers=1)
    again = trained(tmp_path, tmp_path / "b", samplers=3, checkpoint_steps=2)
    assert first.version == again.version and content(first) == content(again)
    assert first.manifest["raw"] and first.summary["numbers"]["test_accuracy"] > 0.2


def test_an_edit_of_the_code_is_another_version(tmp_path: Path) -> None:
    reference = Reference("mine_a:wide", written(tmp_path, "mine_a"))
    first = train_small(tmp_path / "home", model=reference, epochs=1)
    assert train_small(tmp_path / "home", model=reference, epochs=1).reused
    written(tmp_path, "mine_a", WIDE.replace("{width}", "7"))
    from graphmill.trainers.recipe.recipe import ModelRecipe

    config = ModelRecipe.Semantic(seed=5, train=TrainConfig(model=reference), sampling=SAMPLING)
    assert ModelRecipe().raw(config)["model"] != first.manifest["raw"]["model"]


def test_a_list_of_layers_is_like_one_of_ours(tmp_path: Path) -> None:
    """Same layers, same parameters: same logits, bit for bit."""
    config = TrainConfig(model=Reference("mine_b:wide", written(tmp_path, "mine_b")), hidden=6, dropout=0.0)
    mine, ours = build_model(config, 5, 3, seed=0), build_model(TrainConfig(hidden=6, dropout=0.0), 5, 3, seed=0)
    mine.load_state_dict(ours.state_dict())
    blocks = Sampler(random_topology(30, 90, 0), (3, 3), seed=0).sample(BatchKey(0, 0, 0), np.arange(9, dtype=np.int32))
    x = torch.randn(blocks[0].num_src, 5)
    assert torch.equal(mine(blocks, x, StepRandom(0)), ours(blocks, x, StepRandom(0)))
    assert require_layers(mine, "fullgraph") is mine
    again = build_model(config, 5, 3, seed=0)
    assert all(map(torch.equal, again.parameters(), build_model(config, 5, 3, seed=0).parameters()))
    assert not torch.equal(next(again.parameters()), next(build_model(config, 5, 3, seed=1).parameters()))


def test_a_module_draws_by_the_step_and_leaves_torchs_generator_alone(tmp_path: Path) -> None:
    pytest.importorskip("dgl")
    model = build_model(TrainConfig(model=Reference("mine_c:Plain", written(tmp_path, "mine_c"))), 5, 3, seed=0)
    blocks = Sampler(random_topology(30, 90, 0), (3, 3), seed=0).sample(BatchKey(0, 0, 0), np.arange(9, dtype=np.int32))
    x, state = torch.randn(blocks[0].num_src, 5), torch.get_rng_state()
    one = model(blocks, x, StepRandom(0, 1, 2))
    assert torch.equal(one, model(blocks, x, StepRandom(0, 1, 2)))
    assert not torch.equal(one, model(blocks, x, StepRandom(0, 1, 3)))
    evaluated = [model(blocks, x, StepRandom(seed, training=False)) for seed in (0, 1)]
    assert torch.equal(*evaluated) and not torch.equal(one, evaluated[0])
    assert torch.equal(state, torch.get_rng_state())
    assert isinstance(model, OwnModule)
    with pytest.raises(InputError, match='trainer = "fullgraph" runs the two halves of each layer'):
        require_layers(model, "fullgraph")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shallow", "it has 1 layers, the train table 2"),
        ("halved", "layer 0 \\(Linear\\) has no aggregate and no update"),
        ("broken", "failed: AttributeError: .* has no attribute 'hiden'"),
        ("nothing", "made NoneType, not a model"),
        ("absent", "has no absent\n.*wide"),
    ],
)
def test_models_that_do_not_fit_are_explained(tmp_path: Path, name: str, message: str) -> None:
    reference = Reference(f"mine_d:{name}", written(tmp_path, "mine_d"))
    with pytest.raises(InputError, match=message):
        build_model(TrainConfig(model=reference), 5, 3, seed=0)


def test_logits_of_a_wrong_shape_are_explained(tmp_path: Path) -> None:
    pytest.importorskip("dgl")
    reference = Reference("mine_e:Loose", written(tmp_path, "mine_e"))
    with pytest.raises(InputError, match=r"mine_e:Loose returned \[\d+, 4\] for 2[89] seeds"):
        train_small(tmp_path / "home", model=reference, epochs=1, accumulate=1)


def everything(topology: Any, node_ids: np.ndarray, fanout: int, random: Any) -> tuple[np.ndarray, np.ndarray]:
    rows = [topology.indices[topology.indptr[v] : topology.indptr[v + 1]] for v in node_ids]
    return np.array([len(row) for row in rows], int), np.concatenate([*rows, topology.indices[:0]])


def sampler_of(function: Any, fanouts: tuple[int, ...] = (-1, -1)) -> OwnSampler:
    return OwnSampler(random_topology(60, 300, 1), fanouts, function, seed=3, name="mine:function")


@pytest.mark.parametrize("transpose", ["none", "hidden", "all"])
def test_taking_all_neighbours_gives_the_blocks_of_the_kernel(transpose: Any) -> None:
    own = sampler_of(everything)
    seeds, batch = np.array([5, 0, 41], np.int32), BatchKey(Stream.TRAIN, 1, 2)
    blocks = own.sample(batch, seeds, transpose=transpose)
    expected = Sampler(own.topology, (-1, -1), seed=3).sample(batch, seeds, transpose=transpose)
    assert_same_blocks(blocks, expected, ("start", "end", "indices", "src_ids", "t_start", "t_edge", "t_dst"))
    assert len(own.sample(batch, seeds[:0])) == 2


def test_random_numbers_are_named_by_layer_batch_and_node() -> None:
    seen: list[np.ndarray] = []

    def record(topology: Any, node_ids: np.ndarray, fanout: int, random: Any) -> Any:
        seen.append(random.bits(np.arange(4), 2))
        assert random.generator().integers(2**60) == random.generator().integers(2**60)
        return everything(topology, node_ids, fanout, random)

    own = sampler_of(record)
    for batch in (BatchKey(0, 0, 0), BatchKey(0, 0, 0), BatchKey(0, 0, 1), BatchKey(3, 0, 0)):
        own.sample(batch, np.array([1, 2]))
    np.testing.assert_array_equal(seen[0], seen[2])
    assert len({each.tobytes() for each in seen}) == 6 and len(np.unique(seen[0])) == 8


def test_weights_reach_the_blocks() -> None:
    def weighted(*arguments: Any) -> Any:
        counts, sources = everything(*arguments)
        return counts, sources, np.arange(len(sources)) / 2

    for block in sampler_of(weighted).sample(BatchKey(0, 0, 0), np.array([1, 2])):
        assert block.weight is not None and block.weight.dtype == np.float32
        np.testing.assert_array_equal(block.weight, np.arange(len(block.indices)) / 2)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda n: None, "returned NoneType"),
        (lambda n: (np.ones(n + 1, int), np.zeros(n + 1, int)), "3 counts that add up to 3, and 3 sources"),
        (lambda n: (np.ones(n, int), np.zeros(1, int)), "2 counts that add up to 2, and 1 sources"),
        (lambda n: (np.ones(n, int), np.full(n, 60)), "source 60 at position 0"),
        (lambda n: (np.ones(n), np.zeros(n, int)), "counts is float64"),
        (lambda n: (np.ones(n, int), np.zeros(n, int), np.zeros(1)), r"weights \[1\]"),
        (lambda n: 1 // 0, "failed: ZeroDivisionError"),
    ],
)
def test_functions_that_return_no_sample_are_explained(result: Any, message: str) -> None:
    own = sampler_of(lambda topology, node_ids, fanout, random: result(len(node_ids)))
    with pytest.raises(InputError, match=message) as error:
        own.sample(BatchKey(0, 0, 0), np.array([1, 2]))
    assert "mine:function for 2 nodes of layer 1" in str(error.value)


def test_seeds_are_checked_like_the_kernels() -> None:
    with pytest.raises(InputError, match="seed 60 at position 1"):
        sampler_of(everything).sample(BatchKey(0, 0, 0), np.array([1, 60]))
    with pytest.raises(InputError, match="repeated"):
        sampler_of(everything).sample(BatchKey(0, 0, 0), np.array([1, 1]))
    with pytest.raises(InputError, match="is int, not a function"):
        sampler_of(5)


TIED = """
from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.sage import SageLayer

def tied(in_width, num_classes, config):
    layer = SageLayer(in_width, in_width, LayerOptions())
    return [layer, layer, SageLayer(in_width, num_classes, LayerOptions(last=True))]
"""


def test_layers_that_share_their_parameters_train_and_go_on(tmp_path: Path) -> None:
    model = Reference("mine_tied:tied", written(tmp_path, "mine_tied", TIED))
    sampling = replace(SAMPLING, fanouts=(4, 3, 3))
    one = train_small(tmp_path / "one", model=model, layers=3, sampling=sampling, epochs=2, checkpoint_steps=1)
    weights = load(one.file("weights.safetensors").read_bytes())
    shared = [name for name in weights if name.startswith("layers.0.")]
    assert shared
    for name in shared:
        assert torch.equal(weights[name], weights[name.replace("layers.0.", "layers.1.")])


MODES = """
from torch import nn
from graphmill.trainers.models.ends import Projection
from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.sage import SageLayer

class Then(SageLayer):
    def __init__(self, in_width, out_width, module):
        super().__init__(in_width, out_width, LayerOptions())
        self.module = module
    def update(self, agg, h_dst, rng):
        return self.module(super().update(agg, h_dst, rng))

def layers(in_width, num_classes, config, module):
    return [Then(in_width, 6, module), SageLayer(6, num_classes, LayerOptions(last=True))]

def dropped(in_width, num_classes, config):
    return layers(in_width, num_classes, config, nn.Dropout(0.8))

def normed(in_width, num_classes, config):
    return layers(in_width, num_classes, config, nn.BatchNorm1d(6))

class Noted(Projection):
    seen = []
    def forward(self, x, rng):
        self.seen.append((self.training, rng.training))
        return super().forward(x, rng)

def projected(in_width, num_classes, config):
    return LayeredModel(layers(5, num_classes, config, nn.Identity()), projection=Noted(in_width, 5))
"""


@pytest.mark.parametrize("name", ["dropped", "normed"])
def test_exact_inference_evaluates_the_modules_of_layers(tmp_path: Path, name: str) -> None:
    graph = random_graph(tmp_path / "home")
    reference = Reference(f"mine_modes:{name}", written(tmp_path, "mine_modes", MODES))
    model = build_model(TrainConfig(model=reference), graph.features.width, graph.num_classes, seed=0)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = []
    # In several ranges of nodes, whose statistics differ.
    for seed, workspace_bytes in ((1, 2**30), (2, 40_000)):
        torch.manual_seed(seed)
        model.train()
        found.append(infer_exact(model, graph.topology, MemorySource(graph.features), workspace_bytes, 1))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_models_scores_do_not_depend_on_torchs_generator(tmp_path: Path) -> None:
    """Neither those of one process, nor those of parts, nor what `fresh` says of its cached embeddings."""
    model = Reference("mine_modes:dropped", written(tmp_path, "mine_modes", MODES))
    fresh = {"probe": 50, "p_grad": 1.0, "t_stale": "forever"}
    ways: dict[str, Any] = {
        "exact": lambda home: train_small(home, model=model),
        "parts": lambda home: train_parts(home, 2, model=model),
        "fresh": lambda home: train_fresh(home, model=model, hidden=6, eval_every=2, fresh=fresh),
    }
    for way, train in ways.items():
        found = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            found.append(train(tmp_path / f"{way}-{seed}"))
        assert content(found[0]) == content(found[1]), way
        if way == "fresh":
            assert "cached_cosine" in found[0].file("metrics.jsonl").read_text()


@pytest.mark.parametrize("train", [train_small, train_whole])
def test_modules_are_in_the_mode_of_the_pass_after_an_evaluation_too(tmp_path: Path, train: Any) -> None:
    model = Reference("mine_modes:projected", written(tmp_path, "mine_modes", MODES))
    train(tmp_path / "home", model=model, epochs=2)
    seen = sys.modules["mine_modes"].Noted.seen
    assert {training for _, training in seen} == {True, False}
    assert all(mode == training for mode, training in seen)
    seen.clear()
