"""Learnable rows of nodes: their sums and updates against torch's, their initial values, and their place in a model's state."""

import copy

import numpy as np
import pytest
import torch

from graphmill.assets.features.read import NodeTypes
from graphmill.kernels.errors import InputError
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.ends import TypedProjection
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.node_rows import LearntRows, RowAdam, RowGradient, node_rows, summed
from graphmill.trainers.recipe.config import TrainConfig

TYPES = NodeTypes(starts=(0, 10, 40, 60, 75), columns=(6, 0, 3, 0))
CONFIG = TrainConfig(input="typed", embedding="node", hidden=4, dropout=0.0)


def filled(width: int = 4, seed: int = 3) -> LearntRows:
    nodes = LearntRows(TYPES, width)
    nodes.fill(seed, "rows")
    return nodes


def drawn_gradient(rng: np.random.Generator, dtype: torch.dtype) -> RowGradient:
    """A gradient of about half of the 45 rows, in any order."""
    rows = rng.permutation(45)[: rng.integers(15, 30)]
    return RowGradient(torch.from_numpy(rows), torch.from_numpy(rng.normal(size=(len(rows), 4))).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_updates_are_those_of_torchs_sparse_adam_to_the_bit(dtype: torch.dtype) -> None:
    nodes, rng = filled().to(dtype), np.random.default_rng(1)
    mine, betas = RowAdam(nodes, (0.8, 0.99)), (0.8, 0.99)
    theirs = torch.nn.Parameter(nodes.table.values.clone())
    optimiser = torch.optim.SparseAdam([theirs], betas=betas)
    for number in range(1, 9):
        rate, gradients = 0.1 / number, [drawn_gradient(rng, dtype) for _ in range(3)]
        nodes.gradients += gradients
        found = mine.gradient(7)
        assert found is not None
        mine.step(found, rate, number)
        dense = torch.zeros(45, 4, dtype=dtype)
        for rows, values in gradients:  # in order, by another way
            for row, value in zip(rows.tolist(), values, strict=True):
                dense[row] += value
        read = torch.cat([rows for rows, _ in gradients]).unique()
        theirs.grad = torch.sparse_coo_tensor(read[None], dense[read] / 7, (45, 4), check_invariants=True)
        optimiser.param_groups[0]["lr"] = rate
        optimiser.step()
        assert torch.equal(nodes.table.values, theirs.detach())
    unread = torch.ones(45, dtype=torch.bool)
    unread[read] = False
    assert unread.any() and not nodes.gradients


def test_rows_that_a_step_does_not_read_stay_with_their_moments() -> None:
    nodes = filled()
    adam, before = RowAdam(nodes), nodes.table.values.clone()
    adam.step(RowGradient(torch.tensor([4, 2]), torch.ones(2, 4)), 0.1, 1)
    changed = (nodes.table.values != before).any(1).nonzero()[:, 0].tolist()
    assert changed == [2, 4] and nodes.table.mean.any(1).nonzero()[:, 0].tolist() == [2, 4]


def test_sums_are_added_in_order() -> None:
    large, small = RowGradient(torch.tensor([5]), torch.tensor([[1e8]])), torch.tensor([[1.0]])
    one = RowGradient(torch.tensor([7, 5]), torch.tensor([[2.0], [-1e8]]))
    last = RowGradient(torch.tensor([5]), small)
    found, other = summed([large, one, last]), summed([large, last, one])
    assert found is not None and other is not None
    assert found.rows.tolist() == [5, 7] and found.values.tolist() == [[1.0], [2.0]]
    assert other.values.tolist() == [[0.0], [2.0]] and summed([]) is None


def test_initial_rows_follow_from_seed_name_and_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = filled().table.values
    monkeypatch.setattr("graphmill.trainers.models.node_rows.FILLED_VALUES", 12)
    assert torch.equal(filled().table.values, rows)
    alone = LearntRows(NodeTypes(starts=(0, 60, 75), columns=(1, 0)), 4)
    alone.fill(3, "rows")
    assert torch.equal(alone.table.values, rows[30:])  # nodes 60 to 74
    assert len(rows.unique(dim=0)) == 45 and rows.abs().max() <= (6 / 5) ** 0.5 and rows.std() > 0.5
    assert not torch.equal(filled(seed=4).table.values, rows)


def test_initial_rows_of_a_table_are_those_of_a_row_within_the_bound_of_its_type() -> None:
    rows, table = filled(), LearntRows(TYPES, 4, "table")
    table.fill(3, "rows")
    sizes = torch.tensor([30.0] * 30 + [15.0] * 15)[:, None]  # of the two types without features
    wanted = rows.table.values.double() * (5 / (sizes + 4)).sqrt()
    torch.testing.assert_close(table.table.values.double(), wanted, rtol=1e-6, atol=0)


def test_nodes_read_their_rows_and_receive_their_gradients() -> None:
    projection = TypedProjection(TYPES, 4, of_nodes="row")
    nodes = node_rows(projection)
    assert nodes is not None and not projection.embeddings
    nodes.fill(3, "rows")
    ids, x = np.array([70, 0, 12, 41, 39]), torch.ones(5, 6)
    out = projection(x, StepRandom(0).layer(0, ids))
    assert torch.equal(out[[2, 4, 0]].detach(), nodes.table.values[[2, 29, 40]])
    weight = torch.arange(20.0).view(5, 4)
    (out * weight).sum().backward()
    assert not nodes.gradients  # no optimiser would take them
    RowAdam(nodes)
    (projection(x, StepRandom(0).layer(0, ids)) * weight).sum().backward()
    (found,) = nodes.taken()
    assert found.rows.tolist() == [2, 29, 40] and torch.equal(found.values, weight[[2, 4, 0]])
    with torch.no_grad():
        projection(x, StepRandom(0).layer(0, ids))
    projection(x, StepRandom(0, training=False).layer(0, ids)).sum().backward()
    assert not nodes.gradients
    nobody = projection(x[:1], StepRandom(0).layer(0, ids[1:2]))
    nobody.sum().backward()
    assert sum(len(each.rows) for each in nodes.taken()) == 0


def test_rows_are_in_the_state_of_a_model_and_copies_share_them() -> None:
    model, other = (build_model(CONFIG, 6, 3, seed, types=TYPES) for seed in (1, 2))
    nodes, found = node_rows(model), node_rows(other)
    assert nodes is not None and found is not None and not torch.equal(nodes.table.values, found.table.values)
    other.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()})
    assert torch.equal(nodes.table.values, found.table.values)
    assert sum(len(each) == 45 for each in model.parameters()) == 0
    twin = node_rows(copy.deepcopy(model))
    assert twin is not None and twin.table is nodes.table and twin.gradients is not nodes.gradients
    state = model.state_dict()
    (name,) = [name for name in state if name.endswith("nodes.rows")]
    with pytest.raises(RuntimeError, match=r"rows \[44, 4\], and the graph needs \[45, 4\]"):
        other.load_state_dict(state | {name: state[name][1:]})
    state.pop(name)
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict(state)


def test_a_graph_whose_types_all_have_features_is_refused() -> None:
    types = NodeTypes(starts=(0, 10, 40), columns=(6, 3))
    with pytest.raises(InputError, match=r'embedding = "node" has a row .* all types of the graph have'):
        build_model(CONFIG, 6, 3, 1, types=types)
