"""`graphmill new NAME --from SOURCE`: a pipeline file with comments, to begin with."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmill.assets.pipeline.file import load_pipeline, pipelines_folder
from graphmill.assets.pipeline.rules import NAME
from graphmill.assets.pipeline.toml_text import toml_value
from graphmill.assets.sources.folder.guess import Guess, guessed
from graphmill.assets.sources.registry import config_class, source_names
from graphmill.assets.storage.names.patterns import matches
from graphmill.jobs.commands.pipelines.graph_table import graph_table
from graphmill.jobs.commands.pipelines.inspect_source import column_names, is_folder_of_tables, recognise, require_local
from graphmill.kernels.errors import InputError, one_line

UNDIRECTED = "undirected = true            # adds the reverse of every edge\n"
MODEL = """\
name = "sage"
model = "sage"               # or gcn, gat, gin; rgcn for graphs with relations"""
TYPED_MODEL = """\
name = "rgcn"
model = "rgcn"               # or rgat; sage, gat and others read all relations alike"""
LINK_MODEL = """\
name = "{name}"
model = "{name}"               # {about}
metric = "mrr"               # mean reciprocal rank of an edge's ends among all nodes of their types; or hits@10, auc, ap
link_head = "dot"            # how the rows of two nodes make a score; or bilinear, mlp, distmult"""
GRAPH_MODEL = {"name": "sage", "about": "or gcn, gat, gin"}
ROWS_MODEL = {
    "name": "rows",
    "about": "each node learns a row of its own; with features, and without their #: sage, gcn, gat or gin",
}
NODE_ROWS = '\ninput = "typed"\nembedding = "node"           # each node learns a row of its own; with features leave this line out'
LINKS = """
[task]
kind = "links"               # the model learns which nodes have an edge; docs/pipelines.md has the keys
train_ratio = 0.85           # shares of the edges that train and validate; the others test
valid_ratio = 0.05
"""
"""The task of a folder without classes, or whose edges are asked for."""
TYPED_INPUT = '\ninput = "typed"              # a map for each node type, from its own columns'

FEW, SMALLEST_BATCH = 16, 32
"""Batches of an epoch below which a training takes smaller ones, and the smallest."""
TRAIN_RATIO = 0.6
"""Share of the labelled rows that train, where no column has the split."""

TABLES = """
[graph.nodes.user]           # a table for each node type; ids are those of the type
path = "users.parquet"       # a path in quotes, relative to this file
id_column = "id"
features = "x*"              # a pattern, a list of columns, or one column of lists
label_column = "label"

[graph.nodes.item]
path = "items.parquet"
features = "x*"

[graph.edges.buys]           # a table for each relation
path = "purchases.parquet"
source_type = "user"
target_type = "item"
source_column = "user_id"
target_column = "item_id"
"""
"""Tables of `[graph]` with `source = "tables"`."""

TEXT = """\
# {name}: docs/pipelines.md has every key. Check it with: graphmill validate {name}
name = "{name}"
seed = 0                     # every random decision is drawn from it

[graph]
{graph}{task}
[sampling]
fanouts = {fanouts:18} # neighbours per node, from the seeds outwards: as many as the models have layers
batch_size = {batch_size}

# Without these two tables every feature row is read from the file. With them the most requested rows are kept.
# [hotness]
# [memory]
# device = "10%"             # of the features; or a size such as "2GiB"
# host = "30%"

[[train]]
{model}
layers = {layers}
hidden = {hidden}
dropout = {dropout}
epochs = {epochs}
lr = 0.003
"""


@dataclass(frozen=True)
class Template:
    """What of a new pipeline depends on the data: the lines of `[graph]` and of the model, and sizes."""

    graph: str
    model: str = MODEL
    batch_size: int = 1024
    hidden: int = 256
    epochs: int = 20
    layers: int = 2
    task: str = ""
    dropout: float = 0.5

    @property
    def fanouts(self) -> str:
        """The neighbours per node of each layer, as TOML has them."""
        return str([15, 10, 10, 10][: self.layers])


def write_pipeline(name: str, source: str, *, links: bool = False) -> Path:
    """Writes a pipeline file into the folder of named pipelines.

    Args:
        source: a kind of source, or data whose kind can be recognised.
        links: whether the edges of a folder of tables are predicted, though a column may look like classes.

    Raises:
        InputError: the name has characters that names may not have, the file exists already, or the source is unknown or not such a folder.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} has other characters than letters, digits, - and _", "give another name")
    folder = pipelines_folder()
    path = folder / f"{name}.toml"
    if path.exists():
        raise InputError(f"{path} is there already", "edit it, or give another name")
    template = _fitted(source, folder, links)
    text = TEXT.format(name=name, fanouts=template.fanouts, **vars(template))
    folder.mkdir(parents=True, exist_ok=True)
    with open(path, "x") as file:
        file.write(text)
    return path


def planned_pipeline(path: Path, home: Path | None, report: Callable[[str], Any]) -> str:
    """Puts the tables of a plan into a new pipeline file, and returns the sentence about it."""
    from graphmill.jobs.planning.plan import make_plan
    from graphmill.trainers.recipe.config import TrainTable

    try:
        found = make_plan(load_pipeline(path, TrainTable, files=True), home, report=report)
    except InputError as error:
        return f"not planned, since {error.problem.splitlines()[-1].strip()}; later: graphmill plan {path.stem}"
    if found.chosen is None or not found.text:
        return f"no training fits this machine as it stands: graphmill plan {path.stem} says what each would take"
    path.write_text(found.text)
    return f"planned: trainer {found.chosen.variant.technique.name}; graphmill plan {path.stem} says why"


def _fitted(source: str, folder: Path, links: bool) -> Template:
    """Returns what fits a source; paths are relative to the folder of the pipeline file."""
    if links and (source in source_names() or not is_folder_of_tables(Path(source).absolute())):
        problem = f"--links predicts the edges of a folder of tables, and {source} is not one"
        raise InputError(problem, 'leave it out, and write [task] kind = "links" into the file (docs/pipelines.md)')
    if source in source_names():
        return Template(_table_of_kind(source))
    data = Path(source).absolute()
    require_local(source)
    if not matches(data):
        kinds = ", ".join(source_names())
        raise InputError(f"{source} is neither data nor a kind of source", f"give a path, or one of: {kinds}")
    if is_folder_of_tables(data):
        with guessed(data) as guess:
            return _fitted_to(guess, folder, links)
    kind, keys = recognise(data)
    if kind == "table":
        return Template(_unnamed_table(data, folder) + UNDIRECTED)
    paths = {key: os.path.relpath(value, folder) if isinstance(value, Path) else value for key, value in keys.items()}
    return Template(
        "\n".join([f'source = "{kind}"', *(f"{key} = {toml_value(v)}" for key, v in paths.items()), UNDIRECTED])
    )


def _fitted_to(guess: Guess, folder: Path, links: bool) -> Template:
    """Returns what fits a folder of tables: few labelled rows take small batches, a narrower model and more epochs.

    There is one layer more than leads to the farthest node type, from 2 to 4, so that nodes see others with the same neighbours; up
    to 3 for many labelled rows, whose batches would be large. Without a column of classes edges are predicted, by rows that nodes learn.
    """
    if links:
        guess.label = None
    graph = f"{graph_table(guess, folder, hint=not links)}\n"
    if guess.label is None and guess.relations:
        # Nodes of one type and without features would all be alike to a model over their edges.
        several = len(guess.node_types) > 1
        model = LINK_MODEL.format(**(GRAPH_MODEL if several else ROWS_MODEL)) + NODE_ROWS * several
        epochs = 20 if several else 100  # of learnable rows an epoch is short, and only those of its nodes move
        return Template(graph, model, 512, 64, epochs, layers=1 + several, task=LINKS, dropout=0.1)
    model = TYPED_MODEL if guess.typed else MODEL
    model += TYPED_INPUT * (len(guess.node_types) > 1)
    training, layers = int(TRAIN_RATIO * guess.num_labelled), min(4, max(Template.layers, guess.reach + 1))
    if training >= FEW * Template.batch_size:
        return Template(graph, model, layers=min(3, layers))
    batch_size = max(SMALLEST_BATCH, 1 << (training // FEW).bit_length() >> 1)
    return Template(graph, model, min(Template.batch_size, batch_size), hidden=64, epochs=60, layers=layers)


def _table_of_kind(kind: str) -> str:
    """Returns the lines of `[graph]` of a kind of source, with paths to be filled in."""
    keys = config_class(kind).example
    named = [f"{key} = {toml_value(value)}" for key, value in keys.items()]
    if any(isinstance(value, str) for value in keys.values()):
        asset = "the key of an asset of your Dagster project"
        named[0] += f"    # {asset if kind == 'asset' else 'a path in quotes, relative to this file'}"
    return "\n".join([f'source = "{kind}"', *named, UNDIRECTED]) + (TABLES if kind == "tables" else "")


def _unnamed_table(data: Path, folder: Path) -> str:
    """Returns the lines of `[graph]` of an edge table whose columns have other names than usual ones: the user says which are the ends."""
    columns = one_line(", ".join(column_names(data)[:20]))
    return f"""source = "edges"
edges = {toml_value(os.path.relpath(data, folder))}
# Name the two columns with the ends of the edges; there are: {columns}
# source_column = ""
# target_column = ""
# nodes = "nodes.csv"        # a table with a row per node, its ids, numbers to learn from, and classes: docs/own-data.md
# id_column = "id"
# features = ["x1", "x2"]
# label_column = "class"
"""
