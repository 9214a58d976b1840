"""Names of data in a PyG file: those that are missing, that probably mean missing ones, and that are not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphmill.assets.sources.dgl.reader import MASKS
from graphmill.assets.sources.dgl.source import OTHER_MASKS
from graphmill.assets.sources.npz.arrays import MEANT
from graphmill.assets.sources.pyg.stores import Stores
from graphmill.assets.sources.pyg.values import Names, data_of
from graphmill.assets.sources.unread import unread_words
from graphmill.kernels.errors import InputError, did_you_mean

FEATURES = ("h", *MEANT["x"])
"""Names that others give to features; "x" is ours and PyG's."""
LABELS = MEANT["y"]
"""Names that others give to labels; "y" is ours and PyG's."""


def name_mistakes(
    stores: Stores, names: Names, features: Sequence[str | None], *, wants_features: bool
) -> list[InputError]:
    """Returns an error for each name that no node type has, and for data that probably mean missing features, labels or masks.

    Args:
        stores: the data of the graph.
        names: the names that are read.
        features: names of features; None is "x" if it exists.
        wants_features: whether features are missing if "x" is.
    """
    has = sorted({name for data in stores.nodes.values() for name in data if name != "num_nodes"})
    found = []
    asked = [*(("feature", name) for name in features), ("label", names.label)]
    for key, name in asked:
        if name is not None and name not in has:
            hint = f"{did_you_mean(name, has, chr(39))}; they have {', '.join(has) or 'none'}"
            also = ", or `columns` in [features]" if key == "feature" else ""
            found.append(
                InputError(f"{names.path}: no node type has '{name}'{hint}", f"correct `{key}` in [graph]{also}")
            )
    lacks_features = wants_features and None in features and "x" not in has
    lacking = {
        "feature": FEATURES if lacks_features else (),
        "label": LABELS if names.label is None and "y" not in has else (),
    }
    return [*found, *_meant(stores, names, lacking), *_other_masks(stores, names)]


def _read_names(names: Names, features: Sequence[str | None]) -> set[Any]:
    return {
        *(name or "x" for name in features),
        names.feature or "x",
        *names.feature_columns,
        names.label or "y",
        *MASKS,
        "num_nodes",
    }


def _meant(stores: Stores, names: Names, lacking: dict[str, tuple[str, ...]]) -> Iterator[InputError]:
    """Yields an error for the first of the data whose name others give to what is lacking."""
    there = dict.fromkeys(name for data in stores.nodes.values() for name in data)
    for key, others in lacking.items():
        for name in [name for name in there if name.lower() in others][:1]:
            yield InputError(
                f"{names.path}: '{name}' is not read (did you mean {key} = \"{name}\"?)",
                f'set {key} = "{name}" in [graph], or leave it out of the object that you save',
            )


def _other_masks(stores: Stores, names: Names) -> Iterator[InputError]:
    """Yields an error for a node type that lacks a mask and has another one that probably means it."""
    for kind, data in stores.nodes.items():
        for mask in [mask for mask in MASKS if mask not in data]:
            for name in [name for name in data if name.lower() in OTHER_MASKS[mask]][:1]:
                rename = f"data.{mask}" if not stores.typed else f"data['{kind}'].{mask}"
                problem = f"{data_of(stores, names.path, kind)}: '{name}' is not read (did you mean '{mask}'?)"
                raise_to = (
                    f"set {rename} to it, as true or false for each node, delete '{name}', and save the graph again"
                )
                yield InputError(problem, raise_to)


def unread_data(stores: Stores, names: Names, features: Sequence[str | None]) -> list[str]:
    """Returns phrases about the data that no key of the pipeline names."""
    read, found = _read_names(names, features), []
    for kind, data in stores.nodes.items():
        left = [f"'{name}'" for name in data if name not in read]
        found += unread_words("data", "data", left, f" of node type '{kind}'" if stores.typed else " of nodes")
    of_edges = {"edge_index", names.weight} | (set() if stores.typed else {"edge_type"})
    for edge_type, data in stores.edges.items():
        left = [f"'{name}'" for name in data if name not in of_edges]
        found += unread_words("data", "data", left, f" of edges {'/'.join(edge_type)}" if stores.typed else " of edges")
    whole = [f"'{name}'" for name in stores.whole]
    return [*found, *unread_words("data", "data", whole, " of the whole graph")]
