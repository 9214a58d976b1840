"""Finds users' own models that fail or do not go with their trainers, before anything is built.

`python -m graphmill.trainers.models.own_limits` makes each model once, with the numbers of features and classes of the graph: only the
model itself shows whether it is a list of layers, what it takes of a batch, and whether a training pass changes its buffers. Then the
model computes the logits of three nodes. If these numbers are not known, they are made up: an error that they may explain is left to
the training.

The process reads the path and the text of a pipeline file from its standard input, as JSON, and for each table whose numbers are known the
two; it prints a list of [path of the key, sentence]. It is a process of its own, since it runs a user's code.
"""

import json
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.pipeline.schema import FileMistakes
from graphmill.assets.pipeline.sound_rest import sound_rest
from graphmill.assets.pipeline.toml_text import KeyPath
from graphmill.assets.storage.names.user_code import find_source, is_reference, load_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block, Stream, Topology
from graphmill.trainers.models.cut.cut import CutModule, build_fitting_model
from graphmill.trainers.models.cut.small import give_rows
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import Model, OwnModule, WidthError, dtype_of, require_width
from graphmill.trainers.recipe.config import TrainConfig, TrainTable
from graphmill.trainers.recipe.option_table import FileCase
from graphmill.trainers.recipe.together import clashes

IN_WIDTH, NUM_CLASSES, EDGE_WIDTH = 8, 3, 8
"""Columns of features, number of classes and columns of rows of edges of a model for a graph of which they are not known."""
KINDS: Mapping[str, set[str]] = {"dgl": {"module"}, "pyg": set(), "subgraph": {"graph_module"}}
"""Form of a module's batches -> options of the table of options; `blocks = "pyg"` is one itself."""
OF_CODE = (TypeError, NameError, AttributeError)
"""Errors that no number of columns or classes explains."""
NUM_SEEDS, NUM_NODES = 3, 8
"""Nodes of the batch that a model is tried with, and of its graph."""


def model_problems(
    pipeline: Pipeline, ends: Mapping[str, tuple[int, int]] | None = None
) -> Iterator[tuple[KeyPath, str]]:
    """Yields the keys of train tables whose own models do not go with their trainers, and the problem of each.

    Args:
        ends: name of a table -> (columns of features, number of classes), of those that are known.
    """
    for index, table in enumerate(pipeline.train):
        if is_reference(table.model):
            yield from (
                (("train", index, "model"), text)
                for text in _problems_of(table, pipeline.tables, (ends or {}).get(table.name))
            )


def _problems_of(table: TrainTable, tables: Mapping[str, Any], known: tuple[int, int] | None) -> Iterator[str]:
    in_width, num_classes = known or (IN_WIDTH, NUM_CLASSES)
    edge_width = EDGE_WIDTH if table.edge_features else 0
    if edge_width:
        known = None  # the columns of rows of edges are made up
    try:
        load_reference(table.model)
        model = build_fitting_model(table.config, in_width, num_classes, seed=0, edge_width=edge_width)
    except InputError as error:
        failed = str(error).startswith(f"{table.model}({in_width}")
        if known or not failed or isinstance(error.__cause__, OF_CODE):
            yield f"{error.problem}: {error.remedy}"
        return
    case = FileCase(train=table, tables=tables)
    found = [clash.text for clash in clashes(case, _kinds(model))]
    one_chunk = case.table("chunks", "chunks_per_part") == 1 and case.table("partitions", "parts") in (None, 1)
    if isinstance(model, OwnModule) and model.uncut is not None and not one_chunk:
        yield f"{model.uncut.problem}: {model.uncut.remedy}"
        return
    inside = model.convolutions if isinstance(model, OwnModule) else []
    yield from (f"{text}; it is built of {', '.join(inside)}" if inside else text for text in found)
    error = None if found else _forward_error(model, table.config, in_width, num_classes)
    if isinstance(error, InputError) and (known or not isinstance(error, WidthError)):
        yield f"{error.problem}: {error.remedy}"
    elif error is not None and (known or isinstance(error, OF_CODE)):
        text = f"{table.model} failed for a batch of {NUM_SEEDS} nodes{_place(table.model, error)}"
        yield f"{text}: {type(error).__name__}: {error}"


def _forward_error(model: Model, config: TrainConfig, in_width: int, num_classes: int) -> Exception | None:
    """Returns the error of a model that computes a small batch, None if it computes one: without the attributes of edges, or with all."""
    errors: list[Exception] = []
    for attributes in (False, True):
        try:
            blocks = _small_blocks(model, config.layers, attributes)
            if config.edge_features:
                give_rows(blocks, EDGE_WIDTH, dtype_of(model))
            x = torch.ones((blocks[0].num_src, in_width), dtype=dtype_of(model))
            with torch.no_grad():
                logits = model(blocks, x, StepRandom(0, training=False))
            require_width(logits, config.output_width(num_classes), config.model, links=config.predicts_links)
        except Exception as error:
            errors.append(error)
        else:
            return None
    return errors[0]


def _small_blocks(model: Model, depth: int, attributes: bool) -> tuple[Block, ...]:
    """Returns the blocks of a batch of `NUM_SEEDS` nodes with all their neighbours, two for each node.

    Args:
        attributes: whether edges have weights, shares, ids and relations.
    """
    nodes = np.arange(NUM_NODES)
    indices = np.sort((nodes[:, None] + [3, 4]) % NUM_NODES).astype(np.int32).ravel()
    degree = np.full(NUM_NODES, 2, np.int32)
    topology = Topology(
        indptr=np.arange(NUM_NODES + 1, dtype=np.int64) * 2, indices=indices, in_degree=degree, out_degree=degree
    )
    if attributes or getattr(model, "reads_relations", False):
        topology = replace(topology, edge_types=np.zeros(len(indices), np.uint8))
    sampler = Sampler(topology, (-1,) * depth, seed=0)
    blocks = sampler.sample(BatchKey(Stream.PROBE, 0, 0), nodes[:NUM_SEEDS].astype(np.int32), transpose=model.transpose)
    for block in blocks:
        ones = np.ones(len(block.indices), np.float32)
        if attributes or model.edge_weight:
            block.weight = ones
        if model.edge_weight:
            block.self_weight = np.ones(block.num_dst, np.float32)
        if attributes:
            block.share = ones / 2
    return blocks


def _place(reference: str, error: Exception) -> str:
    """Returns the line of the model's own file in which an error arose, as words; "" if it arose elsewhere."""
    source = find_source(reference)
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if Path(each.filename) == source]
    return f" ({source.name}:{lines[-1]})" if lines else ""


def _kinds(model: Model) -> set[str]:
    """Returns the options of the table of options that a model is."""
    whole = model.whole[0] if isinstance(model, CutModule) else model
    found = {"layers"} if isinstance(whole, LayeredModel) else KINDS[whole.form]
    return found | ({"buffers"} if model.changed_buffers else set())


def _sound_part(path: Path, text: str) -> Pipeline | None:
    """Returns the pipeline of a text, of one with mistakes its sound rest; None if too little is left."""
    try:
        return parse_pipeline(path, text.encode(), TrainTable)
    except FileMistakes as mistakes:
        return sound_rest(mistakes, TrainTable)


def main() -> None:
    """Reads a pipeline file and prints the problems of its models."""
    given = json.load(sys.stdin)
    pipeline = _sound_part(Path(given["path"]), given["text"])
    if pipeline is None:
        return print("[]")
    ends = {name: (each[0], each[1]) for name, each in given["ends"].items()}
    return print(json.dumps([*model_problems(pipeline, ends)]))


if __name__ == "__main__":
    main()
