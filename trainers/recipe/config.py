"""The keys of a `[[train]]` table, split into those that decide the result and those that only decide how it is run.

`TrainConfig` is hashed into the model's version. `TrainExecution` is recorded beside it and never hashed: it does not change the losses.
`TrainTable` is both, as written in one table of a pipeline file, with a name and a list of seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

from graphmill.assets.building.keys import ConfigError, KeyProblem, size_problem, within
from graphmill.assets.features.config import of_edges
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.train_schema import TrainSchema
from graphmill.assets.samples.sets import NOT_A_SET
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.fanouts import fanout_problems, spelled
from graphmill.assets.score import name_problem
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.assets.tasks.labels import OF_LABEL
from graphmill.kernels.cuda.driver import num_gpus
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.architecture import LABEL_HEADS, Architecture
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.recipe.file_rules import EXACT_LATER
from graphmill.trainers.recipe.settings import Settings
from graphmill.trainers.recipe.techniques import DEFAULT, TECHNIQUES, Technique, find_technique, technique_names
from graphmill.trainers.recipe.together import file_problems, pipeline_problems, sampling_problems, table_problems
from graphmill.trainers.record.scores import METRICS_OF, Metric

Part = TypeVar("Part")
CACHE_STAGES = ("hotness", "budgets")
"""Stages that a training reads only to cache rows."""
FEW_NODES = 1 << 17
"""Training nodes that are scored in any case: it takes a moment."""
PACKED_STAGES = ("samples", "cache_plan", "packed_chunks")
"""Stages that a training reads to take rows from packed chunks."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Architecture):
    """Everything about a training run that decides its losses and weights."""

    # Technique that trains; trainers/recipe/techniques.py has one row for each.
    trainer: str = field(default=DEFAULT, metadata={"choices": technique_names})
    # Passes over the training nodes.
    epochs: int = field(default=10, metadata=within(1, 10**9))
    # Type of the parameters and of all values computed from them; features keep their stored type until they are gathered. bf16 computes
    # matrix products from bfloat16 and keeps the rest in float32.
    dtype: Literal["float32", "float64", "bf16"] = field(default="float32", metadata={"hashed": "unless default"})
    # Device that computes: cpu, cuda = a GPU, auto = a GPU if there is one. Results of the two kinds differ in the last bits.
    device: Literal["cpu", "cuda", "auto"] = field(default="cpu", metadata={"hashed": "unless default"})
    # Optimiser: adam; adamw = Adam with weight decay apart from the gradient; sgd = stochastic gradient descent with `momentum`.
    optimizer: Literal["adam", "adamw", "sgd"] = field(default="adam", metadata={"hashed": "unless default"})
    # Factors of Adam's two moving averages.
    betas: tuple[float, ...] = field(default=(0.9, 0.999), metadata={"hashed": "unless default"})
    # Share of the step before that sgd adds to a step.
    momentum: float = field(default=0.0, metadata=within(0, below=1, hashed="unless default"))
    # Length to which the gradient of a step is cut, over all parameters; 0 = it is left as it is.
    clip_norm: float = field(default=0.0, metadata=within(0, hashed="unless default"))
    # Learning rate of the optimiser.
    lr: float = field(default=0.003, metadata=within(most=1e6, above=0))
    # Learning rate after the warm-up: constant, or down to 0 at the last step by a half cosine or a line.
    lr_schedule: Literal["constant", "cosine", "linear"] = "constant"
    # Epochs in which the rate grows from 0 to `lr`, by the same amount at each step.
    warmup: int = field(default=0, metadata=within(0, 10**9))
    # L2 penalty inside the gradient; of adamw, share of lr by which the parameters shrink at a step.
    weight_decay: float = field(default=0.0, metadata=within(0, 1e6))
    # Weight of each class in the loss, in label order; balanced = n / (classes x n of the class) over the training split.
    class_weights: Literal["none", "balanced"] | tuple[float, ...] = "none"
    # Share of the loss that goes to all classes alike, instead of the node's own, in [0, 1).
    label_smoothing: float = field(default=0.0, metadata=within(0, below=1, hashed="unless default"))
    # Evaluations without a better validation score before training stops; 0 = never stop early.
    patience: int = field(default=0, metadata=within(0, 10**9))
    # The same counted in epochs, whatever `eval_every` is; 0 = never.
    patience_epochs: int = field(default=0, metadata=within(0, 10**9, hashed="unless default"))
    # Loss of [task] kind = "regression", of numbers standardised by the training nodes: auto = squared; huber = squared up to a distance
    # of 1, then linear. Classes and several labels have cross entropy.
    error: Literal["auto", "squared", "absolute", "huber"] = field(
        default="auto", metadata={"hashed": "unless default"}
    )
    # Weight of the labels that a node has, of [task] kind = "multilabel", in label order; balanced = nodes without / nodes with the label.
    pos_weight: Literal["none", "balanced"] | tuple[float, ...] = field(
        default="none", metadata={"hashed": "unless default"}
    )
    # Loss of [task] kind = "links": bpr = -log sigmoid of an edge's score less another pair's; margin = the part of `margin` that this
    # difference lacks; binary = cross entropy of the scores as logits.
    link_loss: Literal["bpr", "margin", "binary"] = field(default="bpr", metadata={"hashed": "unless default"})
    # Difference of scores from which another pair costs nothing, of link_loss = "margin".
    margin: float = field(default=1.0, metadata=within(0, 1e6, hashed="unless default"))
    # Weight, in the loss of an edge, of half the squared lengths of the rows of its ends, of a [task] on edges; of links a mean over the
    # edge and the pairs that it is compared with. An L2 penalty of the learnable rows that a step reads, which weight_decay leaves out.
    row_penalty: float = field(default=0.0, metadata=within(0, 1e6, hashed="unless default"))
    # Whether a batch's neighbours are drawn without the edges that it predicts and their reverses, of [task] kind = "links",
    # "edge_classes" and "edge_regression".
    exclude_targets: bool = field(default=True, metadata={"hashed": "unless default"})
    # Metric that validation maximises and the leaderboard shows, by the name of scikit-learn's; roc_auc is the mean over classes if there
    # are more than two. Without the key: accuracy, f1_micro of several labels, r2 of numbers, mrr of links.
    metric: Metric = "accuracy"
    # Consecutive mini-batches whose gradients form one optimiser step.
    accumulate: int = field(default=1, metadata=within(1, 10**9))
    # Threads of the training step itself; torch's reductions differ in the last bits from one count to another. auto = the cores that the
    # process may use, shared by the processes and trainers of one machine; the number is recorded with the run, and not hashed.
    threads: int | Literal["auto"] = field(default="auto", metadata=within(1, 4096))
    # Evaluation: exact = all neighbours, layer by layer, of the nodes that the scored ones reach; sampled = the training fanouts, on the
    # evaluation stream; auto = exact where it computes at most 4 million edges and rows, else the one that takes less by the counts, the
    # memory of the machine and the rates of a reference machine.
    eval: Literal["auto", "exact", "sampled"] = "auto"
    # Epochs from one evaluation to the next; the last epoch is always evaluated, and with 0 no other.
    eval_every: int = field(default=1, metadata=within(0, 10**9))
    # Whether the trained model is scored on the training nodes however many they are; else only up to 131,072 of them, or as many as there
    # are validation and test nodes.
    score_train: bool = field(default=False, metadata={"hashed": "unless default"})
    # Memory of an exact evaluation, in bytes; layers that do not fit go to a file. It decides the ranges, and so how matrix products round.
    eval_workspace: str = "512MiB"
    # Trained model whose weights are the initial ones: PIPELINE/NAME, or PIPELINE/NAME@VERSION. The version of that model is hashed, and
    # not its name.
    start: str = field(default="", metadata={"hashed": False})
    # A word of your choice that makes this model a separate one: trained and measured apart from equal recipes, with equal weights.
    trial: str = field(default="", metadata={"hashed": "unless default"})
    # The technique's own settings, from the sub-table [train.NAME]; None if the technique has no settings.
    settings: Any = field(default=None, metadata={"key": False, "hashed": "unless default"})

    def __post_init__(self):
        settings = find_technique(self.trainer).settings_type()
        if self.settings is None and settings is not None:
            object.__setattr__(self, "settings", settings())
        super().__post_init__()

    def problems(self) -> Iterator[KeyProblem]:
        """Yields keys that do not fit the technique or the device."""
        yield from super().problems()
        weights, technique = self.class_weights, find_technique(self.trainer)
        if isinstance(weights, tuple) and not (weights and min(weights) >= 0 < max(weights)):
            yield KeyProblem("class_weights", f"class_weights = {list(weights)!r} has negative weights or only zeros")
        if isinstance(self.pos_weight, tuple) and not (self.pos_weight and min(self.pos_weight) > 0):
            yield KeyProblem("pos_weight", f"pos_weight = {list(self.pos_weight)!r} has weights that are not above 0")
        if self.device != "cpu" and not technique.on_device:
            text = f"device = {self.device!r}, but trainer = {self.trainer!r} runs on the CPU alone"
            yield KeyProblem("device trainer", text)
        yield from size_problem("eval_workspace", self.eval_workspace)
        if self.start:
            yield from name_problem("start", self.start)
        if isinstance(self.threads, str) and self.threads != "auto":
            yield KeyProblem("threads", f'threads = {self.threads!r} is not "auto", nor a whole number')
        yield from self._optimiser_problems()
        if not self.maps and self.head == "convolution" and not self.predicts_links:
            text = "maps = false leaves no map that gives the logits of nodes"
            yield KeyProblem("maps head", f'{text}: write head = "linear" too')
        for name in ("patience", "patience_epochs"):
            if (value := getattr(self, name)) and not self.eval_every:
                text = f"{name} = {value} needs evaluations on the way, and eval_every = 0 has one, at the end: set one of them"
                yield KeyProblem(f"{name} eval_every", text)

    def _optimiser_problems(self) -> Iterator[KeyProblem]:
        if len(self.betas) != 2 or not all(0 <= each < 1 for each in self.betas):
            yield KeyProblem("betas", f"betas = {list(self.betas)} are not two numbers from 0 to below 1")
        if self.momentum and self.optimizer != "sgd":
            yield KeyProblem("momentum optimizer", f"momentum = {self.momentum:g} is for sgd, not for {self.optimizer}")
        if self.betas != (0.9, 0.999) and self.optimizer == "sgd":
            yield KeyProblem("betas optimizer", f"betas = {list(self.betas)} is for adam and adamw, not for sgd")
        yield from self._node_row_problems(self.optimizer, self.own_settings.staleness)

    @property
    def predicts_links(self) -> bool:
        """Whether it is for a [task] on edges: links by its metric, as other kinds have others, and labels of edges by its head."""
        return self.metric in METRICS_OF["links"] or self.link_head in LABEL_HEADS

    def scored_splits(self, num_train: int, num_valid: int, num_test: int) -> tuple[str, ...]:
        """Returns the splits on which the trained model is scored: validation, test, and training if its nodes are few or asked for.

        Training nodes are most of the labelled ones as a rule, and their score decides nothing, but for a graph without validation nodes.
        """
        few = num_train <= max(num_valid + num_test, FEW_NODES) or not num_valid
        return ("train", "valid", "test") if few or self.score_train else ("valid", "test")

    def output_width(self, num_classes: int) -> int:
        """Returns the columns of a model's outputs: logits, or the rows by which links are scored."""
        return self.hidden if self.predicts_links else num_classes

    @property
    def sampled_by(self) -> str:
        """The key that asks for sampled neighbours, as it is written; "" if none does."""
        if self.eval == "sampled":
            return 'eval = "sampled"'
        return f'trainer = "{self.trainer}"' if "sampling" in self.needs else ""

    @property
    def needs(self) -> tuple[str, ...]:
        """Tables that the pipeline file must have besides [graph]."""
        unread = self.own_settings.unread
        return tuple(name for name in find_technique(self.trainer).needs if name not in unread)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Stages besides the graph and its features whose versions enter the model's."""
        unread = self.own_settings.unread
        return tuple(name for name in find_technique(self.trainer).inputs if name not in unread)

    @property
    def num_threads(self) -> int:
        """The number of threads; for "auto" the cores that this process may use."""
        return usable_cores() if isinstance(self.threads, str) else self.threads

    @property
    def own_settings(self) -> Settings:
        """The technique's own settings, or those of a technique without any."""
        return self.settings or Settings()


@dataclass(frozen=True, kw_only=True)
class TrainTable(TrainConfig, TrainExecution, TrainSchema):
    """One `[[train]]` table of a pipeline file."""

    # Name of the model in the pipeline, on the leaderboard and in the UI.
    name: str
    # Seeds, one training for each; empty = one training with the pipeline's seed.
    seeds: tuple[int, ...] = ()
    # Fan-outs of its batches, instead of those of [sampling]: one per layer, from the seeds outwards, or one number for all layers. An
    # entry may be a table of relation -> number, as in [sampling].
    fanouts: tuple[int | dict[str, int], ...] = ()
    # Origin of the mini-batches, as of `TrainExecution`, or the name of a [[samples]] table, whose stored batches are read.
    samples: str = "online"
    # Name of the feature table that it trains on, from [features.NAME]; empty = the main one.
    feature_table: str = ""

    file_problems = staticmethod(file_problems)
    pipeline_problems = staticmethod(pipeline_problems)

    def problems(self) -> Iterator[KeyProblem]:
        """Yields the problems of both halves, of the seeds, and keys that do not fit the technique."""
        yield from super().problems()
        if self.fanouts:
            yield from fanout_problems(self.fanouts, "fanouts")
        if len(set(self.seeds)) != len(self.seeds) or any(seed < 0 for seed in self.seeds):
            text = f"seeds = {list(self.seeds)} repeats a seed or has a negative one: give distinct seeds >= 0"
            yield KeyProblem("seeds", text)
        yield from table_problems(self)

    @classmethod
    def sub_table(cls, entry: Mapping[str, Any]) -> tuple[str, type] | None:
        """Returns name and dataclass of the sub-table with the settings of a table's technique, None if it has no settings."""
        technique = TECHNIQUES.get(str(entry.get("trainer", DEFAULT)))
        settings = technique.settings_type() if technique else None
        return (technique.name, settings) if technique and settings else None

    @classmethod
    def default_tables(cls, entry: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        """Returns name -> keys of the tables that the technique of a table has if the file lacks them."""
        technique = TECHNIQUES.get(str(entry.get("trainer", DEFAULT)))
        settings = entry.get(technique.name) if technique else None
        uncut = isinstance(settings, Mapping) and settings.get("mode") == "device"
        return technique.defaults if technique and not uncut else {}

    @classmethod
    def default_keys(cls, kind: Any) -> Mapping[str, Any]:
        """Returns the keys that a table has if it leaves them out, for the kind of `[task]`, which may be a mistake."""
        if not isinstance(kind, str) or kind not in METRICS_OF:
            return {}
        return {"metric": METRICS_OF[kind][0]} | ({"link_head": "label"} if kind in OF_LABEL else {})

    @property
    def technique(self) -> Technique:
        """The row of the technique that trains."""
        return find_technique(self.trainer)

    @property
    def asks(self) -> Mapping[str, Mapping[str, Any]]:
        """Table -> key -> value that the technique needs there, regardless of the file."""
        return self.technique.asks

    @property
    def by_parts(self) -> bool:
        """Whether several processes may share the training: the technique allows it, and these settings have parts."""
        return self.technique.by_parts and "partitions" in self.needs

    @property
    def stored(self) -> bool:
        """Whether mini-batches come from the `samples` stage."""
        return self.technique.stored or self.samples != "online"

    @property
    def sample_set(self) -> str:
        """Name of the `[[samples]]` table whose batches it reads, "" for none."""
        return "" if self.samples in NOT_A_SET else self.samples

    @property
    def reads(self) -> tuple[str, ...]:
        """Stages that the training reads if the pipeline has them, and that change none of its weights."""
        # Packed rows have their own cache, which takes the same bytes.
        packed = self.technique.stored or self.own_settings.rows == "packed"
        unread = {*(CACHE_STAGES if packed or self.cache == "none" else ()), *(() if packed else PACKED_STAGES)}
        own = tuple(name for name in self.technique.reads if name not in {*unread, *self.own_settings.unread})
        own += tuple(of_edges(name) for name in own if name in PACKED_STAGES[1:] and self.edge_features)
        return tuple(dict.fromkeys((*own, *(("samples",) if self.stored else ()))))

    @property
    def config(self) -> TrainConfig:
        """The half that is hashed; a device of "auto" becomes the one that this machine has."""
        config = _part(TrainConfig, self)
        return replace(config, device="cuda" if num_gpus() else "cpu") if self.device == "auto" else config

    @property
    def execution(self) -> TrainExecution:
        """The half that is only recorded; batches of a sample set are stored ones."""
        return _part(TrainExecution, replace(self, samples="stored") if self.sample_set else self)


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
            if asked := self.train.sampled_by:
                raise InputError(f"{asked} samples neighbours", "add a table [sampling] with fanouts and batch_size")
        elif len(self.sampling.fanouts) != self.train.layers:
            raise InputError(
                f"layers = {self.train.layers} but [sampling] fanouts = {spelled(self.sampling.fanouts)} "
                f"has {len(self.sampling.fanouts)} entries",
                "give one fanout per layer, from the seeds outwards",
            )
        elif self.sampling.by_relation and (why := self.train.without_relations()):
            raise InputError(
                f"fanouts has numbers per relation, but {why}", "give one number per layer, or take another model"
            )
        elif self.sampling.before and self.train.eval != "sampled":
            raise InputError(f'eval = "{self.train.eval}", but {EXACT_LATER}', 'set eval = "sampled"')
        elif self.sampling.before and (why := self.train.without_times()):
            raise InputError(f'before = "seed", but {why}', "take another model: sage, gat, rgcn or rgat")
        elif self.train.reads_relations and (why := self.sampling.without_relations()):
            problem = f'model = "{self.train.model}" reads relations, but [sampling] {why}'
            raise InputError(problem, 'set method = "uniform" or "weighted", or take another model')
        elif self.train.edge_weight and (why := self.sampling.without_weights()):
            problem = f"edge_weight = true multiplies messages by edge weights, but [sampling] {why}"
            raise InputError(problem, "remove one of them")

    @property
    def sampling_seed(self) -> int:
        """Seed of the batches and of their neighbours."""
        return self.seed if self.sampling is None else self.sampling.seed_of(self.seed)


def find_table(pipeline: Pipeline, name: str) -> TrainTable:
    """Returns the train table of a name; raises InputError if the pipeline has no such table."""
    for table in pipeline.train:
        if table.name == name:
            return table
    names = ", ".join(table.name for table in pipeline.train) or "(none)"
    raise InputError(f"{pipeline.path} has no [[train]] table {name!r}", f"the names are: {names}")


def find_recipe(pipeline: Pipeline, name: str, seed: int | None) -> tuple[TrainTable, ModelConfig]:
    """Returns a train table and the recipe of its model of a seed, or of its first; raises InputError without that table or seed."""
    table = find_table(pipeline, name)
    configs = {config.seed: config for config in model_configs(table, pipeline.sampling_of(table), pipeline.seed)}
    if seed is not None and seed not in configs:
        raise InputError(f"{name} has no seed {seed}", f"its seeds are: {', '.join(map(str, configs))}")
    return table, next(iter(configs.values())) if seed is None else configs[seed]


def model_configs(table: TrainTable, sampling: SamplingConfig | None, seed: int) -> list[ModelConfig]:
    """Returns the recipe of each model of a table, one per seed.

    Args:
        sampling: the pipeline's `[sampling]`, as the table's sample set has it; it enters the recipe only if the table samples.
        seed: the pipeline's seed, used if the table has none.

    Raises:
        InputError: the table samples and the pipeline has no `[sampling]`, or the technique cannot draw by it.
    """
    used = sampling if table.sampled_by else None
    if used is not None and table.fanouts:
        used = replace(used, fanouts=table.fanouts)
    if problems := [*sampling_problems(table, used)]:
        raise ConfigError(KeyProblem("sampling", text) for text in problems)
    return [ModelConfig(seed=each, train=table.config, sampling=used) for each in table.seeds or (seed,)]


def _part(cls: type[Part], table: Any) -> Part:
    return cls(**{field.name: getattr(table, field.name) for field in fields(cls)})  # pyright: ignore[reportArgumentType]
