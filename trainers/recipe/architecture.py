"""The keys of a `[[train]]` table that make the model: kind, depth, width, its two ends, and the end of each layer."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.assets.storage.names.user_code import is_reference

ModelName = Literal["sage", "gcn", "gat", "gin", "pinsage", "rgcn", "rgat", "rows"]
MODELS = get_args(ModelName)
LinkHeadName = Literal["dot", "bilinear", "distmult", "transe", "rotate", "mlp", "label", "product"]
DISTANCE_HEADS: tuple[LinkHeadName, ...] = ("transe", "rotate")
RELATION_HEADS: tuple[LinkHeadName, ...] = ("distmult", *DISTANCE_HEADS)
"""Heads of links whose scores are negative distances, and those with a learnable row for each relation."""
LABEL_HEADS: tuple[LinkHeadName, ...] = ("label", "product")
"""Heads that give the label of an edge."""


@dataclass(frozen=True, kw_only=True)
class Architecture(Checked):
    """The architecture of a model: kind, depth, width, its two ends, and the end of each layer."""

    # One of `MODELS`, see trainers/models; or "module:name" of your own model, see trainers/models/own.py. rows = a learnable row for each
    # node and nothing else, of [task] kind = "links", "edge_classes" and "edge_regression".
    model: ModelName | str = "sage"
    # Number of message-passing layers, equal to the number of fanouts.
    layers: int = field(default=2, metadata=within(1, 1_000))
    # Width of the hidden layers.
    hidden: int = field(default=256, metadata=within(1, 1_000_000))
    # Projection of the features: linear = a linear map to `hidden` columns, and dropout, before the first convolution; typed = such a map
    # for each node type, from its own columns, and learnable rows for nodes of types without features (`embedding`).
    input: Literal["none", "linear", "typed"] = field(default="none", metadata={"hashed": "unless default"})
    # Learnable rows of typed input for nodes of types without features: type = the nodes of a type share one; node = each node has its own.
    embedding: Literal["type", "node"] = field(default="type", metadata={"hashed": "unless default"})
    # Initial values of these rows, and of model = "rows": Glorot uniform for a matrix of one row; or of all rows of a type ("table"), which
    # are smaller the more there are, as other libraries begin with tables of embeddings.
    embedding_init: Literal["row", "table"] = field(default="row", metadata={"hashed": "unless default"})
    # Head of the model: convolution = the last layer gives the logits; linear = all layers are hidden, and one linear map gives the logits.
    head: Literal["convolution", "linear"] = field(default="convolution", metadata={"hashed": "unless default"})
    # Score of a pair of rows, of [task] kind = "links": dot = their product; bilinear = with a square matrix between; distmult = with a
    # learnable row for each relation; transe, rotate = the negative distance of the target from the source, which each relation moves or
    # turns; mlp = a network with one hidden layer over both. label = such a network that gives the label of an edge, which is the head of
    # [task] kind = "edge_classes" and "edge_regression" without the key; product = linear maps of both rows, as biases, and of their
    # product, for such labels: with model = "rows" a factorisation of the matrix of ratings.
    link_head: LinkHeadName = field(default="dot", metadata={"hashed": "unless default"})
    # Input of a linear head (jumping knowledge): none = the last layer's output; or the sum, maximum or all layers side by side.
    jk: Literal["none", "sum", "max", "cat"] = field(default="none", metadata={"hashed": "unless default"})
    # Aggregate of `sage`: mean, sum or max of the neighbours' rows beside the node's own; gcn = the mean of both, with one map.
    aggregator: Literal["mean", "gcn", "max", "sum"] = field(default="mean", metadata={"hashed": "unless default"})
    # Whether layers of `gcn` have a matrix, a bias and an activation each; false = they pass on sums of rows alone, so that rows of nodes,
    # a projection and a head are all that is learnt (LightGCN, with `residual`).
    maps: bool = field(default=True, metadata={"hashed": "unless default"})
    # Matrices that those of the relations of `rgcn` are sums of; 0 = every relation has a matrix of its own.
    bases: int = field(default=0, metadata=within(0, 1_000, hashed="unless default"))
    # Whether the data's edge weights multiply messages, in `gcn`, `sage`, `gin`, `gat` and `rgcn`; means are weighted means.
    edge_weight: bool = field(default=False, metadata={"hashed": "unless default"})
    # Whether messages carry the rows of edges of [features.edges], in `gcn`, `sage`, `gin`, `gat`, `rgcn`, `rgat` and a model of your own.
    edge_features: bool = field(default=False, metadata={"hashed": "unless default"})
    # Attention heads of `gat` and `rgat`: side by side in hidden layers (each hidden / heads wide), averaged in a layer that gives logits.
    heads: int = field(default=1, metadata=within(1, 10_000))
    # Normalisation between a hidden layer's convolution and its activation; batch = by the mini-batch's own statistics.
    norm: Literal["none", "layer", "batch"] = "none"
    # Every layer adds its own input rows, through a linear map if the widths differ; "linear" = through one in any case.
    residual: bool | Literal["linear"] = False
    # Function of the hidden values.
    activation: Literal["relu", "gelu", "elu", "leaky_relu", "tanh"] = field(
        default="relu", metadata={"hashed": "unless default"}
    )
    # Feed-forward part of every layer: its columns over `hidden`, 0 = none. Such a layer has its norm before its convolution, and is added
    # to its input rows.
    feed_forward: float = field(default=0.0, metadata=within(0, 64, hashed="unless default"))
    # Probability that a hidden activation is dropped, in [0, 1).
    dropout: float = field(default=0.5, metadata=within(0, below=1))
    # Probability that an input feature is dropped.
    input_dropout: float = field(default=0.0, metadata=within(0, below=1))
    # Probability that an attention weight of `gat` or `rgat` is dropped.
    attention_dropout: float = field(default=0.0, metadata=within(0, below=1))
    # Form of a batch that a module of your own reads: blocks of DGL, or of bipartite edges as PyG's convolutions take them; subgraph = one
    # graph, for forward(x, edge_index) or forward(data), which need not say so.
    blocks: Literal["dgl", "pyg", "subgraph"] = field(default="dgl", metadata={"hashed": "unless default"})

    @property
    def projects(self) -> bool:
        """Whether the features are projected before the first convolution."""
        return self.input != "none"

    @property
    def learns_rows(self) -> bool:
        """Whether it has learnable rows of nodes."""
        return self.embedding == "node" or self.model == "rows"

    @property
    def reads_relations(self) -> bool:
        """Whether the model reads the relations of edges; one of the user's own may, too."""
        return self.model in ("rgcn", "rgat")

    def problems(self) -> Iterator[KeyProblem]:
        """Yields keys that do not fit the model."""
        yield from super().problems()
        if self.link_head == "rotate" and self.hidden % 2:
            text = f'link_head = "rotate" turns pairs of columns, and hidden = {self.hidden} is odd'
            yield KeyProblem("hidden link_head", text)
        if self.jk != "none" and self.head != "linear" and not is_reference(self.model):
            text = f'jk = {self.jk!r} is read by a linear head, and head = {self.head!r}: write head = "linear" too'
            yield KeyProblem("jk head", text)
        if self.embedding != "type" and self.input != "typed":
            text = f'embedding = {self.embedding!r} is of input = "typed", and input = {self.input!r}'
            yield KeyProblem("embedding input", f'{text}: remove the key, or write input = "typed" too')
        if self.blocks != "dgl" and not is_reference(self.model):
            text = f"blocks = {self.blocks!r} is for a module of your own, not for {self.model}: remove the key"
            yield KeyProblem("blocks model", text)
        if is_reference(self.model):
            if self.edge_weight:
                text = f"edge_weight = true is for the models of graphmill, not for {self.model}, which may read weights itself"
                yield KeyProblem("edge_weight model", text)
            ends = {"input": "none", "head": "convolution", "jk": "none"}
            given = [name for name, none in ends.items() if getattr(self, name) != none]
            if given:
                words = " and ".join(f"{name} = {getattr(self, name)!r}" for name in given)
                yield KeyProblem(
                    f"{' '.join(given)} model",
                    f"{words}: for the models of graphmill, not for {self.model}, which brings its own: leave it out and "
                    "return LayeredModel(layers, projection=..., readout=...) (docs/own-models.md)",
                )
        elif self.model not in MODELS:
            text = f"model = {self.model!r} is not one of {', '.join(MODELS)}, nor a reference module:name"
            yield KeyProblem("model", text)
        else:
            yield from self._model_problems()

    def _node_row_problems(self, optimizer: str, staleness: int) -> Iterator[KeyProblem]:
        """Yields the problems of a row for each node with the optimiser, and with updates that gradients may lack."""
        if self.embedding != "node":
            return
        if optimizer == "sgd":
            text = 'embedding = "node" updates its rows by Adam, and optimizer = "sgd": write optimizer = "adam" or "adamw"'
            yield KeyProblem("embedding optimizer", text)
        if staleness:
            text = (
                f'embedding = "node" has rows that replicas would read while they change, with staleness = {staleness}'
            )
            yield KeyProblem("embedding", f"{text}: remove one of them")

    def _model_problems(self) -> Iterator[KeyProblem]:
        """Yields keys that are for other models than this one, or contradict each other in it."""
        own = {
            ("gat", "rgat"): {"heads": 1, "attention_dropout": 0.0},
            ("sage",): {"aggregator": "mean"},
            ("gcn",): {"maps": True},
            ("rgcn",): {"bases": 0},
        }
        for models, keys in own.items():
            for name, default in keys.items() if self.model not in models else ():
                if (value := getattr(self, name)) != default:
                    text = f"{name} = {value!r} is for {' and '.join(models)}, not for {self.model}"
                    yield KeyProblem(f"{name} model", text)
        if self.edge_weight:
            yield from self._weight_problems()
        if self.edge_features and (self.model in ("pinsage", "rows") or self.feed_forward):
            who = "layers with feed_forward" if self.feed_forward else self.model
            text = f"edge_features = true is for gcn, sage, gin, gat, rgcn and rgat, not for {who}: remove the key"
            yield KeyProblem("edge_features model", text)
        if isinstance(self.residual, str) and self.residual != "linear":
            yield KeyProblem("residual", f'residual = {self.residual!r} is not true, false or "linear"')
        if (
            self.model in ("gat", "rgat")
            and (self.layers > 1 or self.head == "linear")
            and self.hidden % max(1, self.heads)
        ):
            yield KeyProblem("hidden heads", f"hidden = {self.hidden} is not a multiple of heads = {self.heads}")
        if self.feed_forward:
            yield from self._feed_forward_problems()
        if not self.maps:
            yield from self._passing_problems()

    def _passing_problems(self) -> Iterator[KeyProblem]:
        """Yields keys that do not fit layers without parameters."""
        given = {"norm": "none", "activation": "relu", "feed_forward": 0.0, "edge_features": False}
        for name in (name for name, none in given.items() if getattr(self, name) != none):
            text = (
                f"{name} = {getattr(self, name)!r} is for layers with parameters, and maps = false: remove one of them"
            )
            yield KeyProblem(f"maps {name}", text)
        if not self.projects:
            text = f"maps = false keeps the width of rows, and input = {self.input!r} brings that of the features"
            yield KeyProblem("maps input", f'{text}: write input = "linear" or "typed" too')

    def without_relations(self) -> str:
        """Returns the reason why the model cannot learn from rows that are drawn with fan-outs per relation, "" if it can."""
        return f"{why}, scaled as if they were drawn uniformly from the whole row" if (why := self._sums()) else ""

    def without_times(self) -> str:
        """Returns the reason why the model cannot learn from neighbours as of a time, "" if it can."""
        return f"{why}, scaled by degrees, which count later edges too" if (why := self._sums()) else ""

    def _sums(self) -> str:
        """Returns words for a model that sums neighbours, "" for others."""
        summed = self.aggregator == "sum" if self.model == "sage" else self.model in ("gcn", "gin")
        given = f'model = "{self.model}"' + (' with aggregator = "sum"' if self.model == "sage" else "")
        return f"{given} sums neighbours" if summed else ""

    def _weight_problems(self) -> Iterator[KeyProblem]:
        """Yields keys that do not fit messages with the data's weights."""
        given = "edge_weight = true"
        if self.model in ("pinsage", "rgat"):
            text = f"{given} is for gcn, sage, gin, gat and rgcn, not for {self.model}"
            yield KeyProblem("edge_weight model", text)
        if self.aggregator == "max":
            text = f'{given} multiplies messages, and aggregator = "max" takes the largest: write aggregator = "mean", "sum" or "gcn"'
            yield KeyProblem("edge_weight aggregator", text)

    def _feed_forward_problems(self) -> Iterator[KeyProblem]:
        """Yields keys that do not fit layers with a feed-forward part."""
        given = f"feed_forward = {self.feed_forward:g}"
        if self.model in ("pinsage", "rgcn", "rgat"):
            yield KeyProblem("feed_forward model", f"{given} is for gcn, sage, gin and gat, not for {self.model}")
        ends = {"input": "none", "head": "convolution"}
        for name in ends:
            if (value := getattr(self, name)) == ends[name]:
                text = f'{given} makes layers of equal width, and {name} = {value!r}: write {name} = "linear" too'
                yield KeyProblem(f"feed_forward {name}", text)
        if self.norm == "batch":
            text = f"{given} has its norm before the convolution, where rows of neighbours are read: norm is 'layer' or 'none' there"
            yield KeyProblem("norm feed_forward", text)
        if self.residual:
            text = f"residual = {self.residual!r}, but layers with {given} are added to their input rows already: remove the key"
            yield KeyProblem("residual feed_forward", text)
