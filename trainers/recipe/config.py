"""The keys of a `[[train]]` table, split into those that decide the result and those that only decide how it is run.

`TrainConfig` is hashed into the model's version. `TrainExecution` is recorded beside it and never hashed: it does not change the losses.
`TrainTable` is both, as written in one table of a pipeline file, with a name and a list of seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

from assets.sampling.config import SamplingConfig
from assets.sizes import parse_size
from assets.storage.user_code import is_reference
from kernels.cuda.driver import num_gpus
from kernels.errors import InputError
from trainers.recipe.settings import Settings
from trainers.recipe.techniques import DEFAULT, TECHNIQUES, Technique, find_technique, technique_names
from trainers.record.metrics import PROGRAMS

Part = TypeVar("Part")
MODELS = ("sage", "gcn", "gat", "gin", "pinsage")
CACHE_STAGES = ("hotness", "budgets")
"""Stages that a training reads only to cache rows."""
PACKED_STAGES = ("samples", "cache_plan", "packed_chunks")
"""Stages that a training reads to take rows from packed chunks."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The architecture of a model: kind, depth, width, its two ends, and the end of each layer."""

    # One of `MODELS`, see trainers/models; or "module:name" of your own model, see trainers/models/own.py.
    model: Literal["sage", "gcn", "gat", "gin", "pinsage"] | str = "sage"
    # Number of message-passing layers, equal to the number of fanouts.
    layers: int = 2
    # Width of the hidden layers.
    hidden: int = 256
    # Projection of the features: linear = a linear map to `hidden` columns, and dropout, before the first convolution.
    input: Literal["none", "linear"] = field(default="none", metadata={"hashed": "unless default"})
    # Head of the model: convolution = the last layer gives the logits; linear = all layers are hidden, and one linear map gives the logits.
    head: Literal["convolution", "linear"] = field(default="convolution", metadata={"hashed": "unless default"})
    # Input of a linear head (jumping knowledge): none = the last layer's output; or the sum, maximum or all layers side by side.
    jk: Literal["none", "sum", "max", "cat"] = field(default="none", metadata={"hashed": "unless default"})
    # Attention heads of `gat`: side by side in hidden layers (each hidden / heads wide), averaged in a layer that gives logits.
    heads: int = 1
    # Normalisation between a hidden layer's convolution and its activation; batch = by the mini-batch's own statistics.
    norm: Literal["none", "layer", "batch"] = "none"
    # Every layer adds its own input rows, through a linear map if the widths differ.
    residual: bool = False
    # Probability that a hidden activation is dropped, in [0, 1).
    dropout: float = 0.5
    # Probability that an input feature is dropped.
    input_dropout: float = 0.0
    # Probability that an attention weight of `gat` is dropped.
    attention_dropout: float = 0.0

    def problems(self) -> list[str]:
        """Returns the errors of the values, one sentence each."""
        found = _below(self, {"layers": 1, "hidden": 1, "heads": 1})
        found += _above(self, {"layers": 1_000, "hidden": 1_000_000, "heads": 10_000})
        found += [
            f"{name} = {getattr(self, name)!r} is not a probability in [0, 1)"
            for name in ("dropout", "input_dropout", "attention_dropout")
            if not 0 <= getattr(self, name) < 1
        ]
        if self.jk != "none" and self.head != "linear":
            found.append(
                f'jk = {self.jk!r} is read by a linear head, and head = {self.head!r}: write head = "linear" too'
            )
        if is_reference(self.model):
            ends = {"input": "none", "head": "convolution"}
            given = [f"{name} = {getattr(self, name)!r}" for name, none in ends.items() if getattr(self, name) != none]
            if given:
                found.append(
                    f"{' and '.join(given)}: for the models of graphmill, not for {self.model}, which brings its own: leave it out and "
                    "return LayeredModel(layers, projection=..., readout=...) (docs/own-models.md)"
                )
            return found
        if self.model not in MODELS:
            found.append(f"model = {self.model!r} is not one of {', '.join(MODELS)}, nor a reference module:name")
        elif self.model != "gat":
            unused = {"heads": 1, "attention_dropout": 0.0}
            found += [
                f"{name} = {getattr(self, name)!r} is for gat, not for {self.model}"
                for name, default in unused.items()
                if getattr(self, name) != default
            ]
        elif (self.layers > 1 or self.head == "linear") and self.hidden % max(1, self.heads):
            found.append(f"hidden = {self.hidden} is not a multiple of heads = {self.heads}")
        return found


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Architecture):
    """Everything about a training run that decides its losses and weights."""

    # Technique that trains; trainers/recipe/techniques.py has one row for each.
    trainer: str = field(default=DEFAULT, metadata={"choices": technique_names})
    # Passes over the training nodes.
    epochs: int = 10
    # Type of the parameters and of all values computed from them; features keep their stored type until they are gathered. bf16 computes
    # matrix products from bfloat16 and keeps the rest in float32.
    dtype: Literal["float32", "float64", "bf16"] = field(default="float32", metadata={"hashed": "unless default"})
    # Device that computes: cpu, cuda = a GPU, auto = a GPU if there is one. Results of the two kinds differ in the last bits.
    device: Literal["cpu", "cuda", "auto"] = field(default="cpu", metadata={"hashed": "unless default"})
    # Learning rate of Adam.
    lr: float = 0.003
    # Learning rate after the warm-up: constant, or down to 0 at the last step by a half cosine or a line.
    lr_schedule: Literal["constant", "cosine", "linear"] = "constant"
    # Epochs in which the rate grows from 0 to `lr`, by the same amount at each step.
    warmup: int = 0
    # L2 penalty inside Adam.
    weight_decay: float = 0.0
    # Weight of each class in the loss, in label order; balanced = n / (classes x n of the class) over the training split.
    class_weights: Literal["none", "balanced"] | tuple[float, ...] = "none"
    # Evaluations without a better validation score before training stops; 0 = never stop early.
    patience: int = 0
    # Metric that validation maximises and the leaderboard shows; roc_auc is the mean over classes if there are more than two.
    metric: Literal["accuracy", "roc_auc"] = "accuracy"
    # Consecutive mini-batches whose gradients form one optimiser step.
    accumulate: int = 1
    # Threads of the training step itself; torch's reductions differ in the last bits from one count to another.
    threads: int = 2
    # Evaluation: exact = all neighbours of every node, layer by layer; sampled = the training fanouts, on the evaluation stream.
    eval: Literal["exact", "sampled"] = "exact"
    # Epochs from one evaluation to the next; the last epoch is always evaluated.
    eval_every: int = 1
    # Memory of an exact evaluation, in bytes; layers that do not fit go to a file. It decides the ranges, and so how matrix products round.
    eval_workspace: str = "512MiB"
    # A word of your choice that makes this model a separate one: trained and measured apart from equal recipes, with equal weights.
    trial: str = field(default="", metadata={"hashed": "unless default"})
    # The technique's own settings, from the sub-table [train.NAME]; None if the technique has no settings.
    settings: Any = field(default=None, metadata={"key": False, "hashed": "unless default"})

    def __post_init__(self):
        """Checks every value against its range and reports all errors at once; missing settings get their defaults."""
        settings = find_technique(self.trainer).settings_type()
        if self.settings is None and settings is not None:
            object.__setattr__(self, "settings", settings())
        problems = self.problems()
        least = {"epochs": 1, "accumulate": 1, "threads": 1, "eval_every": 1, "patience": 0, "weight_decay": 0}
        problems += _below(self, least | {"warmup": 0})
        problems += _above(self, dict.fromkeys(("epochs", "accumulate", "eval_every", "patience", "warmup"), 10**9))
        problems += _above(self, {"threads": 4096, "lr": 1e6, "weight_decay": 1e6})
        if not self.lr > 0:
            problems.append(f"lr = {self.lr!r} is not above 0")
        weights = self.class_weights
        if isinstance(weights, tuple) and not (weights and min(weights) >= 0 < max(weights)):
            problems.append(f"class_weights = {list(weights)!r} has negative weights or only zeros")
        if self.device != "cpu" and is_reference(self.model):
            problems.append(
                f"device = {self.device!r} runs the models of graphmill, not {self.model}: its blocks are DGL's, on the CPU"
            )
        if self.device != "cpu" and not find_technique(self.trainer).on_device:
            problems.append(f"device = {self.device!r}, but trainer = {self.trainer!r} runs on the CPU alone")
        parse_size(self.eval_workspace)
        if find_technique(self.trainer).whole_graph:
            problems += self._uncut_problems()
        if problems:
            raise InputError("; ".join(problems), "give values in these ranges")

    @property
    def own_settings(self) -> Settings:
        """The technique's own settings, or those of a technique without any."""
        return self.settings or Settings()

    def _uncut_problems(self) -> list[str]:
        """Returns the errors of keys that do not fit passes over the whole graph, which are computed in chunks."""
        found = []
        if self.norm == "batch":
            found.append(
                f"norm = 'batch' needs the statistics of all nodes at once, but trainer = {self.trainer!r} sees one chunk at a time: "
                "'layer' has no such need"
            )
        if self.accumulate != 1:
            found.append(
                f"accumulate = {self.accumulate}, but trainer = {self.trainer!r} has one step per epoch, over all seeds"
            )
        return found


@dataclass(frozen=True, kw_only=True)
class TrainExecution:
    """How a run is carried out; changing it changes no result."""

    # Threads that sample and gather ahead of the step; 0 = one less than the machine's cores, at least 1.
    samplers: int = 0
    # Cache of feature rows: auto = rows are cached if the pipeline has [memory] and [hotness]; none = every row comes from the table.
    cache: Literal["auto", "none"] = "auto"
    # Sampled mini-batches that may wait for the step, in bytes of their blocks and input rows; auto = 1GiB, or two batches if these are
    # larger.
    queue: str = "auto"
    # Place of the features: memory = they are read into memory once; mapped = rows are read from the file as they are needed.
    features: Literal["mapped", "memory"] = "mapped"
    # Bytes that the device may hold in parameters, activations and inputs; None = no limit.
    workspace: str | None = None
    # Place of the graph for a device with memory of its own: host = the CPU samples for it; device = it samples from its own copy; uva = it
    # samples over the bus. The batches are the same. On the CPU, if devices sample: device = the graph's bytes are booked on each of them.
    topology: Literal["host", "uva", "device"] = "host"
    # GB/s (10^9 bytes per second) of the link between host and device, modelled by waiting; None = the machine's own speed.
    link_gbps: float | None = None
    # Origin of the mini-batches: online = sampled while training; stored = read from the `samples` stage, the same batches to the byte.
    samples: Literal["online", "stored"] = "online"
    # Method by which packed rows are read: io_uring and pread bypass the page cache, buffered goes through it.
    io: Literal["io_uring", "pread", "buffered"] = "io_uring"
    # Fallback if `io` is unavailable. "error" refuses to run. The choice is logged once.
    io_fallback: Literal["pread", "buffered", "error"] = "pread"
    # Number of reads that each loader has in flight with io_uring.
    io_depth: int = 32
    io_window: str = "1MiB"
    # Optimiser steps from one checkpoint to the next inside an epoch; 0 = at epoch ends only.
    checkpoint_steps: int = 0
    # Programs that receive the numbers of each epoch during the training: "tensorboard", "mlflow".
    metrics_to: tuple[str, ...] = ()

    def __post_init__(self):
        """Checks counts and sizes."""
        if not 1 <= self.io_depth <= 4096:
            raise InputError(f"io_depth = {self.io_depth} is not between 1 and 4096", "give a number of reads")
        for name in ("samplers", "checkpoint_steps"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} = {getattr(self, name)!r} is negative", "give 0 or a count")
        problems = _above(self, {"samplers": 4096, "checkpoint_steps": 10**9})
        if problems:
            raise InputError("; ".join(problems), "give 0 or a count")
        if self.link_gbps is not None and not self.link_gbps > 0:
            raise InputError(f"link_gbps = {self.link_gbps!r} is not above 0", "give GB/s, or leave the key out")
        if not 8192 <= parse_size(self.io_window) <= 1 << 30:
            raise InputError(
                f"io_window = {self.io_window!r} is not between 8 KiB and 1 GiB", 'give a size, like "1MiB"'
            )
        if unknown := [name for name in self.metrics_to if name not in PROGRAMS]:
            raise InputError(f"metrics_to names {unknown}", f"the programs are: {', '.join(PROGRAMS)}")
        for size in (None if self.queue == "auto" else self.queue, self.workspace):
            if size is not None:
                parse_size(size)


@dataclass(frozen=True, kw_only=True)
class TrainTable(TrainConfig, TrainExecution):
    """One `[[train]]` table of a pipeline file."""

    # Name of the model in the pipeline, on the leaderboard and in the UI.
    name: str
    # Seeds, one training for each; empty = one training with the pipeline's seed.
    seeds: tuple[int, ...] = ()
    # Name of the feature table that it trains on, from [features.NAME]; empty = the main one.
    feature_table: str = ""

    def __post_init__(self):
        """Checks both halves and the seeds."""
        TrainConfig.__post_init__(self)
        TrainExecution.__post_init__(self)
        if len(set(self.seeds)) != len(self.seeds) or any(seed < 0 for seed in self.seeds):
            raise InputError(
                f"seeds = {list(self.seeds)} repeats a seed or has a negative one", "give distinct seeds >= 0"
            )
        if self.samples == "stored" and (self.technique.whole_graph or self.technique.by_parts):
            why = "has no mini-batches" if self.technique.whole_graph else "samples the batches of each part"
            raise InputError(f'samples = "stored", but trainer = {self.trainer!r} {why}', "remove the key")
        if self.topology != "host" and (why := self._samples_on_the_host()):
            raise InputError(f"topology = {self.topology!r} samples on the device, but {why}", "remove the key")
        if self.cache == "none" and not {*CACHE_STAGES} <= {*self.technique.inputs, *self.technique.reads}:
            problem = f'cache = "none", but trainer = "{self.trainer}" has no cache that could be left out'
            raise InputError(problem, "remove the key")

    @classmethod
    def sub_table(cls, entry: Mapping[str, Any]) -> tuple[str, type] | None:
        """Returns name and dataclass of the sub-table with the settings of a table's technique, None if it has no settings.

        Args:
            entry: the table as written in the file, checked or not.
        """
        technique = TECHNIQUES.get(str(entry.get("trainer", DEFAULT)))
        settings = technique.settings_type() if technique else None
        return (technique.name, settings) if technique and settings else None

    def _samples_on_the_host(self) -> str:
        """Returns the reason why a device cannot sample the batches; "" if one can, or if the graph's bytes are only booked on it."""
        if self.topology == "device" and self.device != "cuda" and self.technique.books_topology:
            return ""
        if self.device == "cpu":
            return 'device = "cpu"'
        if self.stored:
            return "the batches are stored"
        return "" if self.technique.samples_on_device else f'trainer = "{self.trainer}" samples on the CPU'

    @property
    def technique(self) -> Technique:
        """The row of the technique that trains."""
        return find_technique(self.trainer)

    @property
    def stored(self) -> bool:
        """Whether mini-batches come from the `samples` stage."""
        return self.technique.stored or self.samples == "stored"

    @property
    def reads(self) -> tuple[str, ...]:
        """Stages that the training reads if the pipeline has them, and that change none of its weights."""
        # Packed rows have their own cache, which takes the same bytes.
        packed = self.technique.stored or self.own_settings.rows == "packed"
        unread = {*(CACHE_STAGES if packed or self.cache == "none" else ()), *(() if packed else PACKED_STAGES)}
        own = tuple(name for name in self.technique.reads if name not in unread)
        return tuple(dict.fromkeys((*own, *(("samples",) if self.stored else ()))))

    @property
    def config(self) -> TrainConfig:
        """The half that is hashed; a device of "auto" becomes the one that this machine has."""
        config = _part(TrainConfig, self)
        return replace(config, device="cuda" if num_gpus() else "cpu") if self.device == "auto" else config

    @property
    def execution(self) -> TrainExecution:
        """The half that is only recorded."""
        return _part(TrainExecution, self)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The whole recipe of one trained model besides its input artifacts; the `model` stage's hashed configuration."""

    # Seed of every random decision of the run.
    seed: int
    # The train table's hashed half.
    train: TrainConfig
    # Sampling of mini-batches; None if the technique does not sample.
    sampling: SamplingConfig | None

    def __post_init__(self):
        """Checks that a sampler is configured if one is needed, and that its depth is the model's."""
        if self.sampling is None:
            sampled = "sampling" in find_technique(self.train.trainer).needs or self.train.eval == "sampled"
            if sampled:
                asked = (
                    f'eval = "{self.train.eval}"'
                    if self.train.eval == "sampled"
                    else f'trainer = "{self.train.trainer}"'
                )
                raise InputError(f"{asked} samples neighbours", "add a table [sampling] with fanouts and batch_size")
        elif len(self.sampling.fanouts) != self.train.layers:
            raise InputError(
                f"layers = {self.train.layers} but [sampling] fanouts = {list(self.sampling.fanouts)} "
                f"has {len(self.sampling.fanouts)} entries",
                "give one fanout per layer, from the seeds outwards",
            )


def model_configs(table: TrainTable, sampling: SamplingConfig | None, seed: int) -> list[ModelConfig]:
    """Returns the recipe of each model of a table, one per seed.

    Args:
        table: the train table.
        sampling: the pipeline's `[sampling]`; it enters the recipe only if the table samples.
        seed: the pipeline's seed, used if the table has none.

    Raises:
        InputError: the table samples and the pipeline has no `[sampling]`.
    """
    samples = "sampling" in table.technique.needs or table.eval == "sampled"
    used = sampling if samples else None
    return [ModelConfig(seed=each, train=table.config, sampling=used) for each in table.seeds or (seed,)]


def _part(cls: type[Part], table: Any) -> Part:
    return cls(**{field.name: getattr(table, field.name) for field in fields(cls)})  # pyright: ignore[reportArgumentType]


def _above(config: Any, most: Mapping[str, float]) -> list[str]:
    """Returns the errors of values that are too large for any machine."""
    return [
        f"{name} = {getattr(config, name)!r} is above {n:,}" for name, n in most.items() if getattr(config, name) > n
    ]


def _below(config: Any, least: Mapping[str, float]) -> list[str]:
    return [
        f"{name} = {getattr(config, name)!r} is below {n}" for name, n in least.items() if getattr(config, name) < n
    ]
