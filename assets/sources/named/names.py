"""Names of data: those that are missing, that probably mean missing ones, and that are not read."""

from collections.abc import Iterator, Sequence

from graphmill.assets.sources.named.arrays import MASKS, NamedArrays
from graphmill.assets.sources.named.keys import NamedKeys
from graphmill.assets.sources.splits import part_meant
from graphmill.assets.sources.unread import unread_words
from graphmill.kernels.errors import InputError, did_you_mean


def read_names(data: NamedArrays, keys: NamedKeys, features: Sequence[str | None]) -> list[str]:
    """Returns the names of data of nodes that are read: features, in the order of `features`, labels and masks."""
    return [*(name or data.words.feature for name in features), keys.label or data.words.label, *MASKS]


def missing_names(data: NamedArrays, keys: NamedKeys, features: Sequence[str | None]) -> Iterator[InputError]:
    """Yields an error for each name of features, labels or times that no type has; None among `features` is the library's own name."""
    of_edges = sorted({name for each in data.edges.values() for name in each if name != "edge_index"})
    if keys.time is not None and keys.time not in of_edges:
        hint = f"{did_you_mean(keys.time, of_edges, chr(39))}; they have {', '.join(of_edges) or 'none'}"
        yield InputError(f"{data.where}: no edges have '{keys.time}'{hint}", "correct `time` in [graph]")
    has = sorted({name for each in data.nodes.values() for name in each if name != "num_nodes"})
    for key, name in (*(("feature", name) for name in features), ("label", keys.label)):
        if name is not None and name not in has:
            hint = f"{did_you_mean(name, has, chr(39))}; they have {', '.join(has) or 'none'}"
            also = ", or `columns` in [features]" if key == "feature" else ""
            problem = f"{data.where}: no node type has {data.words.data[0]}'{name}'{hint}"
            yield InputError(problem, f"correct `{key}` in [graph]{also}")


def meant_names(
    data: NamedArrays, keys: NamedKeys, features: Sequence[str | None], *, wants_features: bool
) -> Iterator[InputError]:
    """Yields an error for data that probably mean missing features, if those of the library's own name are wanted, labels or masks."""
    words, read = data.words, read_names(data, keys, features)
    has = dict.fromkeys(name for each in data.nodes.values() for name in each)
    lacks_features = wants_features and None in features and words.feature not in has
    lacking = {
        "feature": (words.feature, *words.features) if lacks_features else (),
        "label": (words.label, *words.labels)
        if keys.links is None and keys.label is None and words.label not in has
        else (),
    }
    for key, others in lacking.items():
        for name in [name for name in has if name not in read and name.lower() in others][:1]:
            problem = f"{data.where}: {words.data[0]}'{name}' is not read (did you mean {key} = \"{name}\"?)"
            remedy = f'set {key} = "{name}" in [graph], or leave it out of the {words.saved} that you save'
            yield InputError(problem, remedy)
    yield from _other_masks(data) if keys.links is None else ()


def _other_masks(data: NamedArrays) -> Iterator[InputError]:
    """Yields an error for a node type that lacks a mask and has another one that probably means it."""
    for kind, names in data.nodes.items():
        for mask in [mask for mask in MASKS if mask not in names]:
            for name in [name for name in names if part_meant(name) == mask.removesuffix("_mask")][:1]:
                problem = f"{data.place(kind)}: '{name}' is not read (did you mean '{mask}'?)"
                owner = f"data['{kind}']" if data.typed else "data"
                yield InputError(problem, data.words.rename.format(owner=owner, mask=mask, name=name))


def unread_data(data: NamedArrays, keys: NamedKeys, features: Sequence[str | None]) -> list[str]:
    """Returns phrases about the data that no key of the pipeline names."""
    read = {*read_names(data, keys, [*features, keys.feature]), *keys.feature_columns, "num_nodes"}
    (_, of_nodes, of_edges), found = data.words.data, []
    for kind, names in data.nodes.items():
        left = [f"'{name}'" for name in names if name not in read]
        found += unread_words(of_nodes, of_nodes, left, f" of node type '{kind}'" if data.typed else " of nodes")
    read = {"edge_index", *keys.edge_names} | (set() if data.typed else {"edge_type"})
    read |= {*MASKS, *(f"edge_{mask}" for mask in MASKS)} if keys.marks == "given" else set()
    for edge_type, names in data.edges.items():
        left = [f"'{name}'" for name in names if name not in read]
        found += unread_words(
            of_edges, of_edges, left, f" of edges {'/'.join(edge_type)}" if data.typed else " of edges"
        )
    return [*found, *data.whole]
