"""The text of the page of a train table's models; without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import fmean, stdev

from graphmill.assets.building.page import Page, markdown_text
from graphmill.assets.sampling.fanouts import entry_text
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.links import SEES_LINKS
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.record.checks import TIERS
from graphmill.trainers.record.memory import measured_memory
from graphmill.trainers.record.scores import METRICS, bare, percent

ON_DEVICE = ("hits_device", "hits_arena")
"""Tiers of rows that the device holds."""


def headline(artifacts: Sequence[Artifact]) -> str:
    """Returns score, epochs with their time, the share of rows that the device held, and the peak memory if it was recorded."""
    parts = [_score(artifacts), _epochs(artifacts)]
    share = device_share(artifacts[-1])
    if share is not None:
        parts.append(f"{100 * share:.0f} % of the rows from the device")
    run = artifacts[-1].run_record()
    if peak := measured_memory(run):
        said = (run.get("memory_need") or {}).get("bytes", 0)
        # Of ranks the estimate is for those on the first machine, and the peak is that of all.
        before = f" (estimate {said / (1 << 20):,.0f} MiB)" if said and not run.get("ranks") else ""
        parts.append(f"peak memory {peak / (1 << 20):,.0f} MiB{before}")
    return ", ".join(part for part in parts if part)


def _score(models: Sequence[Artifact]) -> str:
    """Returns the metric of the table on test nodes, or on validation or training nodes if the graph has no others."""
    config, numbers = models[0].config["train"], models[0].summary["numbers"]
    metric = config.get("metric", "accuracy")
    for split in ("test", "valid", "train"):
        if (name := f"{split}_{metric}") in numbers:
            values = [model.summary["numbers"][name] for model in models]
            mean, unit = bare(metric, fmean(values), 1), " %" if percent(metric) else ""
            spread, seeds = (
                (f" ± {bare(metric, stdev(values), 1)}", f" ({_of(models)})") if len(values) > 1 else ("", "")
            )
            return f"**{mean}{spread}{unit} {split} {METRICS.get(metric, metric)}**{seeds}"
    return ""


def _of(models: Sequence[Artifact]) -> str:
    """Returns the words for the models of a mean: seeds, splits, or several splits with several seeds each."""
    seeds, graphs = ({model.config["seed"] for model in models}, {model.inputs["graph"]["version"] for model in models})
    if len(graphs) == 1:
        return f"{len(seeds)} seeds"
    return f"{len(graphs)} splits" + (f" of {len(seeds)} seeds" if len(seeds) > 1 else "")


def _epochs(models: Sequence[Artifact]) -> str:
    seconds = [each for model in models for each in model.run_record().get("epoch_seconds", {}).get("train", [])]
    runs = sorted({model.summary["numbers"]["epochs_run"] for model in models})
    epochs = str(runs[0]) if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    return f"{epochs} epochs" + (f" of {fmean(seconds):.2g} s" if seconds else "")


def device_share(model: Artifact) -> float | None:
    """Returns the share of a model's input rows that its device held, cached or in the arena; None if it held none."""
    counts = json.loads(model.file("ledger.json").read_text())["counts"]
    rows = {row["name"]: row["n"] for row in counts if row["layer"] == 0}
    if not rows.get("inputs") or not any(name in rows for name in ON_DEVICE):
        return None
    return sum(rows.get(name, 0) for name in ON_DEVICE) / rows["inputs"]


def sentence(config: ModelConfig) -> str:
    """Returns model, trainer and sizes of a recipe in Markdown."""
    train, sampling = config.train, config.sampling
    layers = "1 layer" if train.layers == 1 else f"{train.layers} layers"
    heads = f", {train.heads} heads" if train.heads > 1 else ""
    epochs = "1 epoch" if train.epochs == 1 else f"{train.epochs} epochs"
    steps = "one step over the whole graph each"
    if sampling is not None and not find_technique(train.trainer).whole_graph:
        fanouts = ", ".join("all" if fanout == -1 else markdown_text(entry_text(fanout)) for fanout in sampling.fanouts)
        steps = f"batches of at most {sampling.batch_size:,} seeds, fan-outs {fanouts}"
    sees = f" `exclude_targets = false` {SEES_LINKS}." if train.predicts_links and not train.exclude_targets else ""
    start = f" It begins with the weights of `{train.start}`." if train.start else ""
    return (
        f"Model `{train.model}`: {layers}, {train.hidden:,} wide{heads}. "
        f"Trainer `{train.trainer}`: {epochs}, {steps}, learning rate {train.lr:g}.{sees}{start}"
    )


MODEL_PAGE = Page(
    about="The trained models of one `[[train]]` table, one per seed and split: the weights that were best on validation, the "
    "metrics of each epoch and a ledger of what moved. "
    "Everything upstream is there for this, and equal weights mean an equal training, bit by bit. "
    "Look at the test score and the learning curve first, then at the seconds per epoch and at the bytes by link, which say what it cost.",
    docs="docs/stages/model.md",
    headline=headline,
    first=(
        *(f"{split}_accuracy" for split in ("test", "valid", "train")),
        *(f"{split}_{metric}" for metric in METRICS for split in ("test", "valid") if metric != "accuracy"),
        "epochs_run",
        "best_epoch",
        "loss",
        "parameters",
    ),
    labels={
        "loss": "loss of the last epoch",
        "evaluation": "evaluation, chosen by cost",
        "exact_evaluation_seconds": "exact evaluations on a reference machine (s)",
        "sampled_evaluation_seconds": "sampled evaluations on a reference machine (s)",
        "disk_bytes": "read from disk (MiB)",
        "mapped_bytes": "asked of mapped files (MiB)",
        "h2d_bytes": "moved from host to device (MiB)",
        "d2h_bytes": "moved from device to host (MiB)",
        "d2d_bytes": "moved within the device (MiB)",
        "rank_bytes": "moved from rank to rank (MiB)",
        **{name: f"rows from the {place}" for name, place in TIERS.items()},
        "device_hit_ratio": "rows from the device (%)",
        "cache_device_rows": "rows kept on the device",
        "cache_host_rows": "rows kept on the host",
    },
    kinds=frozenset({"pytorch"}),
)
