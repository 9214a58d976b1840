"""Every rule between a train table and its file is broken by a file, and said at the line of its key."""

from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe import together
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.file_rules import RULES, FileRule
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.assets.pipeline.test_absent_data import FULL

SBM = 'source = "sbm"\nnodes = 240\nedges = 1400\nfeatures = 8\nclasses = 3'
TYPED = 'source = "pyg"\npath = "typed.pt"\nweight = "w"'
CITATIONS = 'source = "typed_citation"\nnodes = 400\nedges = 1600\nfeatures = 8\nclasses = 3'
SAMPLING = "[sampling]\nfanouts = [4, 3]\nbatch_size = 32\n"
TIMED = f'{SAMPLING}before = "seed"\n'
EVENTS = 'source = "events"\nnodes = 300\nedges = 2000\nfeatures = 4\nclasses = 3'
PARTS = "[partitions]\nparts = 2\n"
CACHED = '[hotness]\npolicy = "degree"\n[memory]\nhost = "20%"\n'


def text_of(train: str, tables: str = SAMPLING, graph: str = SBM) -> str:
    return f'[graph]\n{graph}\n{tables}[[train]]\nname = "x"\n{train}\n'


NUMBERS, SEVERAL = (f'{SAMPLING}[task]\nkind = "{kind}"\n' for kind in ("regression", "multilabel"))
BROKEN = {
    "accuracy of numbers": text_of('metric = "accuracy"', NUMBERS),
    "weights of classes, of numbers": text_of('class_weights = "balanced"', NUMBERS),
    "smoothed classes, of labels": text_of("label_smoothing = 0.1", SEVERAL),
    "an error of labels": text_of('error = "huber"', SEVERAL),
    "weights of labels, of classes": text_of('pos_weight = "balanced"'),
    "a head of links, of classes": text_of('link_head = "mlp"'),
    "a penalty of rows, of classes": text_of("row_penalty = 0.1"),
    "a head of labels, of links": text_of('link_head = "label"', f'{SAMPLING}[task]\nkind = "links"\n'),
    "a loss of links, of classes": text_of('link_loss = "binary"'),
    "a margin of links, of classes": text_of("margin = 2.0"),
    "excluded links, of classes": text_of("exclude_targets = false"),
    "rows of nodes, of classes": text_of('model = "rows"'),
    "links by messages": text_of(
        'trainer = "distributed"\ndistributed.scheme = "vanilla"', f'{SAMPLING}{PARTS}[task]\nkind = "links"\n'
    ),
    "no feature table": text_of('feature_table = "b"'),
    "another feature table": text_of('feature_table = "b"', SAMPLING + '[features.a]\ndtype = "float32"\n'),
    "no table": text_of('trainer = "disk"'),
    "no samples": text_of('samples = "stored"'),
    "other seeds": text_of('trainer = "disk"\nseeds = [1]', f"{SAMPLING}{CACHED}[samples]\n[cache_plan]\n"),
    "rows without a plan": text_of(
        'trainer = "distributed"\nsamples = "stored"\ndistributed.rows = "packed"',
        f'{SAMPLING}{PARTS}[samples]\nplan = "parts"\n',
    ),
    "sums by relation": text_of('model = "gin"', SAMPLING.replace("[4, 3]", "[{ cites = 4 }, 3]"), TYPED),
    "weights of walks": text_of("edge_weight = true", SAMPLING + 'method = "random_walk"\n', TYPED),
    "relations of walks": text_of('model = "rgcn"', SAMPLING + 'method = "random_walk"\n', TYPED),
    "rows of all nodes": text_of(
        'input = "typed"\nembedding = "node"', SAMPLING + '[features]\nfile = "rows.npy"\n', CITATIONS
    ),
    "no type without features": text_of(
        'input = "typed"\nembedding = "node"', graph=FULL.format(item=', features = "g*"')
    ),
    "initial values of no rows": text_of('embedding_init = "table"'),
    "files of no rows": text_of('embedding_rows = "memory"'),
    "files of rows behind a start": text_of(
        'input = "typed"\nembedding = "node"\nembedding_rows = "mapped"\nstart = "x/y"', graph=CITATIONS
    ),
    "no relations": text_of('model = "rgcn"'),
    "no weights": text_of("edge_weight = true"),
    "no rows of edges": text_of("edge_features = true"),
    "all neighbours as of a time": text_of('eval = "exact"', TIMED, EVENTS),
    "degrees as of a time": text_of('model = "gcn"\neval = "sampled"', TIMED, EVENTS),
    "links as of a time": text_of('eval = "sampled"', f'{TIMED}[task]\nkind = "links"\n', EVENTS),
    "no types": text_of('input = "typed"'),
    "fan-outs without relations": text_of("fanouts = [{ cites = 4 }, 3]"),
    "no budget": text_of('trainer = "factored"\nfactored.presample = 1'),
    "few linked devices": text_of(
        'trainer = "distributed"\n[train.distributed]\nranks = 4\nlinks = "0 1 @ 32GB/s"', SAMPLING + PARTS
    ),
    "peers without a cache": text_of('trainer = "distributed"\ndistributed.exchange = "peer"', SAMPLING + PARTS),
    "devices and parts": text_of('trainer = "fullgraph"\nfullgraph.devices = 3', PARTS),
    "links of GPUs": text_of('trainer = "fullgraph"\ndevice = "cuda"\nfullgraph.peer_link = "4 GB/s"', PARTS),
    "devices and ranks": text_of('trainer = "fullgraph"\n[train.fullgraph]\ndevices = 2\nranks = 4', PARTS),
}


def rules() -> list[FileRule]:
    """All rules, each once."""
    return list(dict.fromkeys([*RULES, *(rule for technique in TECHNIQUES.values() for rule in technique.rules())]))


def test_each_rule_is_broken_by_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    broken: set[FileRule] = set()
    real = together._conflicts

    def watched(case):
        own = (*RULES, *case.train.technique.rules())
        broken.update(rule for rule in own if rule.broken(case))
        return real(case)

    monkeypatch.setattr(together, "_conflicts", watched)
    for name, text in BROKEN.items():
        before = set(broken)
        with pytest.raises(InputError) as caught:
            parse_pipeline(Path("/nowhere/p.toml"), text.encode(), TrainTable)
        for rule in broken - before:
            line = next(line for line in str(caught.value).splitlines() if rule.text.split("{")[0] in line)
            assert "{case" not in line and "{found" not in line, (name, line)
    assert [rule.text for rule in rules() if rule not in broken] == []
