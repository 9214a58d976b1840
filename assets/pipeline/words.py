"""Keys that other tools have and a pipeline file has not: each with the sentence about what to write instead."""

from collections.abc import Mapping

KINDS = '"classes", "multilabel", "regression", "links", "edge_classes" or "edge_regression"'
TASK = f"what a model learns stands in a table of its own: [task] with kind = {KINDS}"
LOSS = "it follows from [task] kind: of classes it is cross entropy, weighed by class_weights, and `error` names that of numbers"
RATE = "it is called lr"
OPTIMISER = "the optimiser is Adam: leave it out, and set lr and weight_decay"
SCHEDULE = 'it is called lr_schedule: "constant", "cosine" or "linear", after `warmup` epochs'
LAYERS, HIDDEN, EPOCHS = "it is called layers", "it is called hidden", "it is called epochs"
BATCH = "batches are the same for all models: set batch_size in [sampling]"
FANOUTS = "neighbours are sampled for all models alike: set fanouts in [sampling], one for each layer"
STOP = "it is called patience: the number of evaluations without a better score"
WORKERS = "it is called samplers: the threads that prepare batches"
WIDTHS = "it follows from the data: leave it out"
ACTIVATION = "layers are followed by ReLU: leave it out, or give a model of your own (docs/own-models.md)"
PRECISION = 'it is called dtype: "float32", "bf16" or "float64"'
SEED = "one seed stands above all tables; several stand here, as a list: seeds = [0, 1, 2]"
SPEED = '{new} has the unit in its value: {new} = "12 GB/s"; a card of 12 Gbit/s has an eighth of it, and is written {new} = "12 Gbit/s"'
DEVICE = 'it is called device: "cpu", "cuda" or "auto"'
TIMES = (
    'times of edges split links, with [task] kind = "links" and split = "time", or say what a seed sees, with [sampling] '
    'before = "seed": they are time_column of an edge table'
)
ROWS_AS_OF = (
    "a node has one row of features, as of no time: those that change with time are not read. Times of edges and of seeds are keys of "
    '[graph], for [sampling] before = "seed"'
)
SNAPSHOTS = (
    "a training on the whole graph knows no times, since it computes each node once: trainers that sample give each seed the edges "
    'before it, with [sampling] before = "seed"'
)

TRAIN: Mapping[str, str] = {
    "task": TASK, "task_type": TASK, "objective": TASK, "target": TASK, "num_tasks": TASK, "multilabel": TASK, "regression": TASK,
    "loss": LOSS, "loss_fn": LOSS, "criterion": LOSS, "loss_function": LOSS,
    "learning_rate": RATE, "learn_rate": RATE, "step_size": RATE, "eta": RATE,
    "optimizer": OPTIMISER, "optimiser": OPTIMISER, "optim": OPTIMISER, "momentum": OPTIMISER, "betas": OPTIMISER,
    "scheduler": SCHEDULE, "lr_scheduler": SCHEDULE, "lr_decay": SCHEDULE,
    "num_layers": LAYERS, "n_layers": LAYERS, "depth": LAYERS,
    "hidden_channels": HIDDEN, "hidden_dim": HIDDEN, "hidden_size": HIDDEN, "hidden_units": HIDDEN, "num_hidden": HIDDEN,
    "n_hidden": HIDDEN, "hidden_features": HIDDEN,
    "num_epochs": EPOCHS, "n_epochs": EPOCHS, "max_epochs": EPOCHS, "iterations": EPOCHS,
    "batch_size": BATCH, "batchsize": BATCH, "fanouts": FANOUTS, "fanout": FANOUTS, "fan_out": FANOUTS, "num_neighbors": FANOUTS,
    "num_neighbours": FANOUTS,
    "early_stopping": STOP, "early_stop": STOP,
    "num_workers": WORKERS, "workers": WORKERS,
    "in_channels": WIDTHS, "out_channels": WIDTHS, "in_feats": WIDTHS, "in_dim": WIDTHS, "out_dim": WIDTHS, "num_classes": WIDTHS,
    "num_features": WIDTHS,
    "activation": ACTIVATION, "act": ACTIVATION, "nonlinearity": ACTIVATION,
    "precision": PRECISION, "amp": PRECISION, "fp16": PRECISION, "bf16": PRECISION, "mixed_precision": PRECISION,
    "gpu": DEVICE, "gpus": DEVICE, "cuda": DEVICE, "use_gpu": DEVICE, "accelerator": DEVICE,
    "seed": SEED, "random_state": SEED, "random_seed": SEED,
    "num_heads": "it is called heads", "n_heads": "it is called heads",
    "drop_rate": "it is called dropout", "dropout_rate": "it is called dropout", "p_dropout": "it is called dropout",
    "l2": "it is called weight_decay", "l2_reg": "it is called weight_decay", "wd": "it is called weight_decay",
    **{old: SPEED.format(new=new) for old, new in (("link_gbps", "link"), ("rank_gbps", "rank_link"), ("peer_gbps", "peer_link"))},
    "split": "splits belong to the graph: see [graph]",
    "snapshots": SNAPSHOTS, "num_snapshots": SNAPSHOTS,
}  # fmt: skip
"""Keys that are no keys of a `[[train]]` table."""

ELSEWHERE: Mapping[str, str] = (
    {name: TRAIN[name] for name in ("task_type", "objective", "regression", "multilabel")}
    | {
        name: f"{TRAIN[name]}, in [[train]]"
        for name in ("loss", "criterion", "learning_rate", "optimizer", "optimiser", "scheduler")
    }
    | dict.fromkeys(("timestamp_column", "edge_time"), TIMES)
)
"""Keys that are keys of no table, and no tables either."""

FEATURES: Mapping[str, str] = dict.fromkeys(("time_column", "time", "node_time", "as_of", "timestamp"), ROWS_AS_OF)
"""Keys that are no keys of a `[features]` table."""
OF_TABLES: Mapping[str, Mapping[str, str]] = {"train": TRAIN, "features": FEATURES}


def sentence(key: str, table: str) -> str:
    """Returns the sentence about an unknown key of a table ("" for the file itself), "" if there is none."""
    word = key.lower().replace("-", "_")
    return OF_TABLES.get(table, ELSEWHERE).get(word, "")
