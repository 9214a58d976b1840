"""Keys of a train table that need relations, weights or node types, with sources that certainly have none, or may."""

from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable

HEAD = 'name = "p"\n[graph]\n{graph}\n[sampling]\nfanouts = [5, 5]\n[[train]]\nname = "t"\n{key}\n'
EDGES = 'source = "edges"\nedges = "e.csv"\nsource_column = "a"\ntarget_column = "b"\n'
RMAT = 'source = "rmat"\nnodes = 100\nedges = 500\n'
TYPED = 'source = "typed_citation"\nnodes = 100\nedges = 500\n'
NODE = 'input = "typed"\nembedding = "node"'
FILE = 'input = "typed"\nembedding = "node"\n[features]\nfile = "x.npy"\n'
FULL = """source = "tables"
nodes.user = {{ path = "u.csv", features = "f*" }}
nodes.item = {{ path = "i.csv"{item} }}
edges.buys = {{ path = "e.csv", source_type = "user", target_type = "item" }}
"""
SHOP = 'source = "tables"\nnodes.user.num_nodes = 9\nedges.knows = { path = "e.csv", source_type = "user", target_type = "user" }\n'


def loaded(tmp_path: Path, graph: str, key: str) -> None:
    (tmp_path / "p.toml").write_text(HEAD.format(graph=graph, key=key))
    load_pipeline(tmp_path / "p.toml", TrainTable)


@pytest.mark.parametrize(
    ("graph", "key", "problem"),
    [
        (RMAT, 'model = "rgcn"', 'model = "rgcn" has matrices per relation, and the edges of source = "rmat" have no'),
        (
            EDGES,
            'model = "rgat"',
            'model = "rgat" has matrices per relation, and the edges of source = "edges" have no',
        ),
        (SHOP, 'model = "rgcn"', 'and the edges of source = "tables" have no relations here'),
        (
            RMAT,
            "edge_weight = true",
            'edge_weight = true multiplies messages by edge weights, and source = "rmat" gives',
        ),
        (EDGES, "edge_weight = true", 'source = "edges" gives none here'),
        (TYPED, "edge_weight = true", 'source = "typed_citation" gives none here'),
        (RMAT, 'input = "typed"', 'input = "typed" has a projection per node type, and the nodes of source = "rmat"'),
        (EDGES + 'type_column = "r"\n', 'input = "typed"', 'the nodes of source = "edges" have no types here'),
        (
            FULL.format(item=', features = "g*"'),
            NODE,
            '13: embedding = "node" has a row for each node of the types without features, and all node types of source = "tables"',
        ),
        (
            FULL.format(item=""),
            FILE,
            '13: embedding = "node" has a row for each node of the types without features, and the file',
        ),
        (RMAT, NODE.replace("typed", "linear"), "12: embedding = 'node' is of input = \"typed\", and input = 'linear'"),
        (RMAT, 'embedding = "node"', "11: embedding = 'node' is of input = \"typed\", and input = 'none'"),
        (TYPED, NODE + '\noptimizer = "sgd"', '12: embedding = "node" updates its rows by Adam, and optimizer = "sgd"'),
        (
            TYPED,
            NODE + '\ntrainer = "factored"\nfactored.staleness = 2',
            '12: embedding = "node" has rows that replicas would read',
        ),
    ],
)
def test_they_are_refused_where_the_source_certainly_has_none(
    tmp_path: Path, graph: str, key: str, problem: str
) -> None:
    with pytest.raises(InputError) as error:
        loaded(tmp_path, graph, key)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("graph", "key"),
    [
        (EDGES + 'type_column = "r"\n', 'model = "rgcn"'),
        (EDGES + 'weight_column = "w"\n', "edge_weight = true"),
        (TYPED, 'model = "rgat"\ninput = "typed"'),
        ('source = "dgl"\npath = "g.bin"\n', 'model = "rgcn"\ninput = "typed"'),
        (SHOP.replace('"user" }', '"user", weight_column = "w" }'), "edge_weight = true"),
        (TYPED, NODE),
        (FULL.format(item=""), NODE),
        (FULL.format(item=', features = "g*"'), FILE + 'node_type = "user"\n'),
        ('source = "dgl"\npath = "g.bin"\n', NODE),
    ],
)
def test_they_are_taken_where_the_source_may_have_them(tmp_path: Path, graph: str, key: str) -> None:
    loaded(tmp_path, graph, key)
