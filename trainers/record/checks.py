"""The checks of a trained model: its weights, its scores, its losses and its ledger.

Only weights that are not finite keep a model from being published. Every other failure is a warning: the model is published, and its page
names the failed check.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from graphmill.assets.building.stage import Check
from graphmill.trainers.record.scores import METRICS, percent, shown

FINITE, ABOVE_CHANCE, LOSS_FELL = "weights are finite", "score above chance", "loss fell"
MODEL_CHECKS = (FINITE, ABOVE_CHANCE, LOSS_FELL)
"""Checks of every model; the UI lists checks before they have run."""

LEDGER_EQUALS_PLAN = "ledger equals plan"
"""Check of a technique that predicts the numbers of its ledger."""

MODEL_WARNINGS = (ABOVE_CHANCE, LOSS_FELL, LEDGER_EQUALS_PLAN)
"""Checks whose failure is a warning."""

TIERS = {
    "hits_device": "device",
    "hits_peer": "devices of other ranks",
    "hits_arena": "arena",
    "hits_own": "own shards",
    "hits_host": "host",
    "hits_remote": "other ranks",
    "hits_disk_cache": "disk cache",
    "hits_packed": "packed",
    "misses": "feature file",
}
"""Counts of the ledger by origin of rows, and the origin in words; a row that none of them counts came from the feature file."""

COUNTS = {name: f"rows from the {place}" for name, place in TIERS.items()} | {
    "without_features": "inputs without features",
    **{f"edge_{name}": f"rows of edges from the {place}" for name, place in TIERS.items()},
}
"""Counts of the ledger in words, except for those of layers."""

LAYER_COUNTS = {
    "history_hits": "rows from the history",
    "history_hits_evicted": "rows from the history that were evicted meanwhile",
    "history_hits_missed": "computed rows that the history had meanwhile",
    "pruned_nodes": "inputs pruned",
    "pruned_edges": "edges pruned",
    "history_admitted": "rows admitted to the history",
    "history_evicted": "rows evicted from the history",
}
LAYERED = ("inputs", "edges", *LAYER_COUNTS)
"""Counts of the ledger that are kept by layer."""

TIER_ROWS, TO_DEVICE, INPUTS = "rows of all tiers", "bytes of features to the device", "inputs of layer 0"

NAMED = 3
"""Numbers of the ledger that the sentence of its check names; all of them are compared."""


def weights_check(total: int, wrong: int) -> Check:
    """Tests that no parameter or buffer of a model is NaN or infinite: of `total` values, `wrong` are."""
    return Check(
        name=FINITE,
        passed=wrong == 0,
        detail=f"{wrong:,} of {total:,} weights are NaN or infinite" + ("; lower `lr`" if wrong else ""),
        numbers={"weights not finite": wrong, "allowed not finite": 0, "weights": total},
    )


def chance_check(metric: str, split: str, score: float | None, chance: float, said: str) -> Check:
    """Tests that a score is better than that of an answer that ignores the node.

    Args:
        score: score of the model's kept weights; None if the split has no nodes or the metric is not defined.
        chance, said: score of the other answer, and the words for it.
    """
    if score is None:
        return Check(name=ABOVE_CHANCE, passed=False, detail=f"no {split} node has a score", blocking=False)
    reached, passed = f"{split} {METRICS[metric]} {shown(metric, score)}", score > chance
    unit, scale = (", %", 100) if percent(metric) else ("", 1)
    return Check(
        name=ABOVE_CHANCE,
        passed=passed,
        detail=f"{reached} is {'above' if passed else 'not above'} {shown(metric, chance)}, {said}",
        numbers={f"{split} {metric}{unit}": scale * score, f"chance{unit}": scale * chance},
        blocking=False,
    )


def loss_check(history: Sequence[Mapping[str, Any]], unit: str = ", nats") -> Check:
    """Tests that the losses of a training are finite and the last of several below the first; `unit` stands after the word "losses"."""
    losses = [float(row["loss"]) for row in history]
    first, last, best = losses[0], losses[-1], min(range(len(losses)), key=lambda epoch: losses[epoch])
    infinite = sum(not math.isfinite(loss) for loss in losses)
    fell = len(losses) == 1 or last < first
    if step := history[-1].get("ended_at_step"):
        detail = (
            f"the loss of epoch {len(losses)} was NaN or infinite at step {step}, where the training ended; lower `lr`"
        )
    elif infinite:
        detail = f"the loss of {infinite:,} of {len(losses):,} epochs is NaN or infinite; lower `lr`"
    elif len(losses) == 1:
        detail = f"the loss of the only epoch, {first:.4f}, is finite; there is no second one to compare it with"
    else:
        detail = (
            f"the loss {'fell' if fell else 'did not fall'} from {first:.4f} in epoch 1 to {last:.4f} in epoch {len(losses)}; "
            f"the lowest is {losses[best]:.4f} in epoch {best + 1}"
        )
    numbers = {
        f"loss of the last epoch{unit}": last,
        f"loss of the first epoch{unit}": first,
        f"lowest loss{unit}": losses[best],
    }
    return Check(
        name=LOSS_FELL,
        passed=fell and not infinite,
        detail=detail,
        numbers={label: loss for label, loss in numbers.items() if math.isfinite(loss)},
        blocking=False,
    )  # fmt: skip


def ledger_numbers(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, int]:
    """Returns the numbers of `Ledger.rows` by name, and two sums: rows of all tiers, and bytes of features that reached the device."""
    found: dict[str, int] = {}
    for row in rows["counts"]:
        found[count_name(row["name"], row["layer"])] = row["n"]
    for row in rows["moves"]:
        for what in ("asked", "moved"):
            label = move_name(row["link"], row["kind"], what)
            found[label] = found.get(label, 0) + row[f"{what}_bytes"]
    tiers = [row["n"] for row in rows["counts"] if row["name"] in TIERS]
    moved = (found.get(move_name(link, "feature"), 0) for link in ("h2d", "d2d"))
    return found | {TIER_ROWS: sum(tiers), TO_DEVICE: sum(moved)}


def count_name(name: str, layer: int) -> str:
    """Returns the name of a count of the ledger in words."""
    return f"{LAYER_COUNTS.get(name, name)} of layer {layer}" if name in LAYERED else COUNTS.get(name, name)


def move_name(link: str, kind: str, what: str = "moved") -> str:
    """Returns the name of bytes of the ledger in words: those that crossed a link, or those that were "asked" of it."""
    return f"bytes of {kind} {what} over {link}"


def conserved(
    planned: Mapping[str, int], counted: Mapping[str, int], row_bytes: int, *, tiered: bool, arena_row_bytes: int = 0
) -> dict[str, int]:
    """Returns the numbers that a ledger has by the law that every input row reaches the device once, from one place.

    The number of inputs of a sampled batch is known only when it is drawn, and the number of pruned ones only after the step's lookup. For
    these the ledger's own counts are used, which are kept apart from those of rows and bytes.

    Args:
        planned: numbers that are known before the training; inputs and edges are those before anything is pruned.
        counted: the ledger (`ledger_numbers`).
        tiered: whether the source of the rows counts them by tier.
    """
    left = dict(planned)
    for name in planned:
        for count, gone in (("inputs", "pruned_nodes"), ("edges", "pruned_edges")):
            if name.startswith(f"{count} of layer "):
                left[name] -= counted.get(count_name(gone, int(name.rpartition(" ")[2])), 0)
    hits, remote = (counted.get(count_name(name, 0), 0) for name in ("hits_arena", "hits_remote"))
    rows = left.get(INPUTS, counted.get(INPUTS, 0)) - counted.get(count_name("without_features", 0), 0)
    left[TO_DEVICE] = (rows - hits) * row_bytes + hits * arena_row_bytes
    if tiered or hits:
        left[TIER_ROWS] = rows if tiered else hits
    return left | ({move_name("rank", "feature"): remote * row_bytes} if remote else {})


def ledger_check(counted: Mapping[str, int], planned: Mapping[str, int]) -> Check:
    """Tests that a ledger equals the numbers known before the training, to the last byte.

    Args:
        counted: the ledger (`ledger_numbers`); missing numbers are 0.
        planned: the predicted numbers, under the same names, the most important first.
    """
    pairs = {name: (counted.get(name, 0), n) for name, n in planned.items()}
    wrong = [f"{found:,} {name} instead of {n:,}" for name, (found, n) in pairs.items() if found != n]
    named = ", ".join(f"{n:,} {name}" for name, n in list(planned.items())[:NAMED])
    numbers = {"numbers that differ": len(wrong), "numbers compared": len(planned)}
    for name, (found, n) in list(pairs.items())[:NAMED]:
        numbers |= {f"{name}, counted": found, f"{name}, planned": n}
    return Check(
        name=LEDGER_EQUALS_PLAN,
        passed=not wrong,
        detail=f"{len(wrong):,} of {len(planned):,} numbers of the ledger differ from the plan: {'; '.join(wrong)}"
        if wrong
        else f"each of {len(planned):,} planned numbers is that of the ledger: {named}",
        numbers=numbers,
        blocking=False,
    )
