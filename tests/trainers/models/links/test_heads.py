"""Heads and losses of links: scores and gradients against formulas in NumPy, in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from graphmill.kernels.errors import InputError
from graphmill.trainers.models.layer import initialise
from graphmill.trainers.models.links.heads import TransEHead, link_head
from graphmill.trainers.models.links.losses import LinkLoss

HEADS = ["dot", "bilinear", "distmult", "transe", "rotate", "mlp"]
LOSSES = ["bpr", "margin", "binary"]


def head_and_rows(name, pairs=5, width=4):
    """A head of three relations, float64 rows of the ends of pairs that want gradients, and their relations."""
    head = link_head(name, width, relations=3, hidden=6)
    initialise(head, 1)
    generator = torch.Generator().manual_seed(3)
    rows = [torch.randn(pairs, width, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    return head.double(), *rows, torch.arange(pairs) % 3


def formula(name, head, source, target, relation):
    """(scores, gradients of source, target and of each parameter by name) of a sum of scores, by hand."""
    values = {key: value.detach().numpy() for key, value in head.named_parameters()}
    u, v, r = source.detach().numpy(), target.detach().numpy(), relation.numpy()
    if name == "dot":
        return (u * v).sum(1), v, u, {}
    if name == "bilinear":
        w = values["weight"]
        return np.einsum("pi,ij,pj->p", u, w, v), v @ w.T, u @ w, {"weight": u.T @ v}
    if name == "distmult":
        w = values["relation"]
        own = np.zeros_like(w)
        np.add.at(own, r, u * v)
        return (u * w[r] * v).sum(1), w[r] * v, u * w[r], {"relation": own}
    if name in ("transe", "rotate"):
        return distances(head, u, v, r)
    a, b, c = values["source.weight"], values["target.weight"], values["score.weight"][0]
    hidden = u @ a.T + v @ b.T + values["source.bias"]
    passed = (hidden > 0) * c
    gradients = {
        "source.weight": passed.T @ u,
        "source.bias": passed.sum(0),
        "target.weight": passed.T @ v,
        "score.weight": np.maximum(hidden, 0).sum(0)[None],
        "score.bias": np.array([len(u)], float),
    }
    return np.maximum(hidden, 0) @ c + values["score.bias"], passed @ a, passed @ b, gradients


def distances(head, u, v, r):
    """The same of the two heads of distances, by complex numbers."""
    rows = head.relation.detach().numpy()
    own = np.zeros_like(rows)
    if isinstance(head, TransEHead):
        between = u + rows[r] - v
        slope = -between / np.linalg.norm(between, axis=1, keepdims=True)
        np.add.at(own, r, slope)
        return -np.linalg.norm(between, axis=1), slope, -slope, {"relation": own}
    half = u.shape[1] // 2
    turn = np.exp(1j * rows[r] * head.unit)
    turned = (u[:, :half] + 1j * u[:, half:]) * turn
    between = turned - (v[:, :half] + 1j * v[:, half:])
    slope = -between / np.linalg.norm(between, axis=1, keepdims=True)
    back = slope * turn.conj()
    np.add.at(own, r, head.unit * (slope.conj() * 1j * turned).real)
    ends = (np.concatenate([each.real, each.imag], axis=1) for each in (back, -slope))
    return -np.linalg.norm(between, axis=1), *ends, {"relation": own}


@pytest.mark.parametrize("name", HEADS)
def test_scores_and_gradients_are_those_of_the_formula(name):
    head, source, target, relation = head_and_rows(name)
    scores = head(source, target, relation)
    scores.sum().backward()
    expected, source_gradient, target_gradient, gradients = formula(name, head, source, target, relation)
    np.testing.assert_allclose(scores.detach(), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(source.grad, source_gradient, rtol=0, atol=1e-10)
    np.testing.assert_allclose(target.grad, target_gradient, rtol=0, atol=1e-10)
    assert {*gradients} == {key for key, _ in head.named_parameters()}
    for key, parameter in head.named_parameters():
        np.testing.assert_allclose(parameter.grad, gradients[key], rtol=0, atol=1e-10, err_msg=key)


@pytest.mark.parametrize("name", HEADS)
def test_scores_of_many_negatives_are_those_of_each(name):
    head, source, target, relation = head_and_rows(name, pairs=6)
    whole = head(source.view(2, 3, 4), target.view(2, 3, 4), relation.view(2, 3))
    torch.testing.assert_close(whole, head(source, target, relation).view(2, 3), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("side", ["target", "source"])
def test_a_tile_has_the_scores_of_all_pairs(name, side):
    head, source, target, relation = head_and_rows(name)
    kept, candidates = (source, target) if side == "target" else (target, source)
    out = torch.empty(len(kept), len(candidates), dtype=torch.float64)
    with torch.no_grad():
        head.tile(head.query(kept, relation, side), candidates, side, out)
        for i in range(len(kept)):
            ends = (kept[i : i + 1].expand(5, -1), candidates)
            expected = head(*(ends if side == "target" else ends[::-1]), relation[i].repeat(5))
            torch.testing.assert_close(out[i], expected, rtol=0, atol=1e-12)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def loss_formula(name, positive, negative, margin):
    """(loss, gradients of the two kinds of scores), by hand."""
    k = negative.shape[1]
    between = positive[:, None] - negative
    if name == "bpr":
        slope = -sigmoid(-between) / k
        return np.logaddexp(0, -between).sum() / k, slope.sum(1), -slope
    if name == "margin":
        slope = -(between < margin).astype(float) / k
        return np.maximum(0, margin - between).sum() / k, slope.sum(1), -slope
    loss = (np.logaddexp(0, -positive).sum() + np.logaddexp(0, negative).sum()) / (1 + k)
    return loss, -sigmoid(-positive) / (1 + k), sigmoid(negative) / (1 + k)


@given(st.sampled_from(LOSSES), st.integers(1, 5), st.integers(1, 4), st.sampled_from([1.0, 30.0]), st.integers(0, 9))
def test_losses_and_gradients_are_those_of_the_formula(name, pairs, per_positive, scale, seed):
    generator = np.random.default_rng(seed)
    scores = generator.standard_normal(pairs) * scale, generator.standard_normal((pairs, per_positive)) * scale
    positive, negative = (torch.tensor(each, requires_grad=True) for each in scores)
    loss = LinkLoss(name, margin=0.7)(positive, negative)
    loss.backward()
    expected, own, others = loss_formula(name, *scores, 0.7)
    assert abs(loss.item() - expected) < 1e-10 * max(1, abs(expected))
    np.testing.assert_allclose(positive.grad, own, rtol=0, atol=1e-10)
    np.testing.assert_allclose(negative.grad, others, rtol=0, atol=1e-10)


def test_the_binary_loss_is_that_of_all_pairs_as_other_libraries_take_it():
    generator = torch.Generator().manual_seed(1)
    positive = torch.randn(7, generator=generator, dtype=torch.float64)
    negative = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    scores = torch.cat([positive, negative.view(-1)])
    labels = torch.cat([torch.ones(7), torch.zeros(21)]).double()
    expected = functional.binary_cross_entropy_with_logits(scores, labels)
    assert abs(LinkLoss("binary")(positive, negative) / 7 - expected) < 1e-12


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="dot, bilinear, distmult, transe, rotate, mlp, label or product"):
        link_head("cosine", 4)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="rows of 5 columns are no complex numbers"):
        link_head("rotate", 5, relations=2)
    with pytest.raises(InputError, match="bpr, margin or binary"):
        LinkLoss("hinge")  # pyright: ignore[reportArgumentType]


def test_angles_begin_anywhere_in_a_full_turn_and_turn_back():
    head = link_head("rotate", 64, relations=9)
    initialise(head, 0)
    angles = (head.relation * head.unit).detach()
    assert angles.abs().max() <= np.pi and angles.abs().max() > 0.95 * np.pi and abs(angles.mean()) < 0.4
    rows, relation = torch.randn(9, 64), torch.arange(9)
    there = head.query(rows, relation, "target")
    torch.testing.assert_close(head.query(there, relation, "source"), rows)
    torch.testing.assert_close(there.norm(dim=1), rows.norm(dim=1))


@pytest.mark.parametrize("name", ["transe", "rotate"])
@pytest.mark.parametrize("side", ["target", "source"])
def test_equal_rows_have_equal_distances_wherever_they_stand_in_a_tile(name, side):
    head = link_head(name, 24, relations=1)
    initialise(head, 2)
    rows, out = torch.randn(1, 24).repeat(1530, 1), torch.empty(383, 1530)
    with torch.no_grad():
        head.tile(head.query(torch.randn(1, 24).repeat(383, 1), None, side), rows, side, out)
    assert len(out.unique()) == 1
