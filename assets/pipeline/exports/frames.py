"""Artifacts as Polars frames, and these as frames of pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError

if TYPE_CHECKING:
    import polars


def node_frame(graph: Artifact) -> polars.DataFrame:
    """Returns the table of a graph's nodes, one row per node in the order of the arrays.

    Columns: node_id (int64, from 0), original_id (id of the node in the source), name and class (texts, null if unknown),
    label (int32, -1 unknown), split ("train", "valid", "test", or null), in_degree and out_degree (int32).
    """
    import polars

    from graphmill.assets.graph.read import open_graph

    opened = open_graph(graph)
    split = np.zeros(opened.topology.num_nodes, np.int64)
    for number, part in enumerate(("train", "valid", "test"), 1):
        split[np.asarray(getattr(opened, f"{part}_ids"))] = number
    names = polars.Series([None, "train", "valid", "test"], dtype=polars.String)
    return polars.read_parquet(graph.file("nodes.parquet"), glob=False).with_columns(
        polars.Series("label", np.array(opened.labels)),
        names.gather(split).alias("split"),
        polars.Series("in_degree", np.array(opened.topology.in_degree)),
        polars.Series("out_degree", np.array(opened.topology.out_degree)),
    )


def to_pandas(frame: polars.DataFrame) -> Any:
    """Returns a frame as a `pandas.DataFrame`, without the Arrow that Polars' own `to_pandas` needs: lists and texts are Python objects.

    Raises:
        InputError: pandas is not installed.
    """
    try:
        import pandas  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError("pandas is not installed", "pip install pandas, or use the frame of Polars") from error
    columns = {
        column.name: column.to_numpy() if column.dtype.is_numeric() and not column.null_count() else column.to_list()
        for column in frame
    }
    return pandas.DataFrame(columns)
