import os
from dataclasses import dataclass
from typing import Literal

import pytest

from graphmill.assets.pipeline.file import SHIPPED, find_pipeline, load_pipeline, pipeline_files
from graphmill.assets.pipeline.train_schema import TrainSchema
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable, model_configs


@dataclass(frozen=True, kw_only=True)
class Train(TrainSchema):
    name: str
    trainer: Literal["minibatch"] = "minibatch"
    layers: int = 2
    lr: float = 0.01


GOOD = """
seed = 7
[graph]
source = "sbm"
nodes = 100
edges = 500
[sampling]
fanouts = [10, 5]
[[train]]
name = "a"
[[train]]
name = "b"
lr = 1
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    def write(text, name="mine"):
        (tmp_path / f"{name}.toml").write_text(text)
        return tmp_path / f"{name}.toml"

    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))
    return write


def mistakes(path, schema=Train):
    with pytest.raises(InputError) as caught:
        load_pipeline(path, schema)
    prefix = f"{path}:"
    lines = [line.strip() for line in str(caught.value).splitlines()]
    return [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]


def test_a_pipeline_is_read_whole(write):
    path = write(GOOD)
    pipeline = load_pipeline("mine", Train)
    assert (pipeline.name, pipeline.seed, pipeline.path, pipeline.text) == ("mine", 7, path, GOOD)
    assert pipeline.sampling == SamplingConfig(fanouts=(10, 5)) and pipeline.graph.seed == 7
    assert pipeline.graph.source == "sbm"
    assert pipeline.train == (Train(name="a"), Train(name="b", lr=1.0))
    assert load_pipeline(path).train == ()


def test_a_pipeline_may_stop_at_the_graph(write):
    pipeline = load_pipeline(write('[graph]\nsource = "sbm"\nnodes = 10\nedges = 50\n'), Train)
    assert pipeline.sampling is None and pipeline.train == ()


def test_all_mistakes_at_once(write, monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    text = """\
sed = 1
name = "white space"
[graph]
source = "npz"
path = "${NOWHERE}/cora.npz"
undirectd = true
[sampling]
method = "random_walks"
fanouts = [10,
  0.5]
[schedule]
cron = "0 3 * *"
[[train]]
trainer = "frsh"
ranks = 4
lr = "fast"
"""
    assert mistakes(write(text)) == [
        "1: a pipeline has no sed (did you mean seed?)",
        "2: name = 'white space' has other characters than letters, digits, - and _",
        '5: path = "${NOWHERE}/cora.npz": ${NOWHERE} is not set; export it or write the path out',
        "6: [graph] has no key undirectd (did you mean undirected?)",
        '8: method = "random_walks" is not one of uniform, weighted, random_walk (did you mean random_walk?)',
        "10: fanouts[1] = 0.5 is not a whole number or a table",
        "12: cron = '0 3 * *' has 4 fields; write five fields, minute hour day month weekday, such as \"0 3 * * *\" for every day at "
        "three, or @hourly, @daily, @weekly",
        "13: [[train]] lacks the key name (a text in quotes)",
        '14: trainer = "frsh" is not one of minibatch',
        "15: [[train]] has no key ranks; it has layers, lr, name, trainer",
        '16: lr = "fast" is not a number',
    ]


def test_words_of_other_tools_get_a_sentence_each(write) -> None:
    words = {
        "task = 'regression'": 'stands in a table of its own: [task] with kind = "classes", "multilabel", "regression", "links", '
        '"edge_classes" or "edge_regression"',
        "Criterion = 'mse'": "it follows from [task] kind: of classes it is cross entropy",
        "learning_rate = 0.1": "it is called lr",
        "optimiser = 'sgd'": "the optimiser is Adam",
        "num-layers = 3": "it is called layers",
        "batch_size = 5": "set batch_size in [sampling]",
        "snapshots = 4": "a training on the whole graph knows no times",
    }
    text = 'objective = "x"\n[graph]\nsource = "sbm"\n[[train]]\nname = "a"\n' + "\n".join(words)
    found = mistakes(write(text))
    assert any("a pipeline has no objective: what a model learns stands in a table" in line for line in found)
    for word, sentence in words.items():
        (line,) = (each for each in found if f"[[train]] has no key {word.split()[0]}" in each)
        assert f"{word.split()[0]}: " in line and sentence in line and "; it has" not in line


def test_features_that_change_with_time_are_refused_with_the_reason(write) -> None:
    for key in ("time_column", "node_time"):
        found = mistakes(write(f'[graph]\nsource = "sbm"\n[features]\n{key} = "when"\n'))
        said = f"[features] has no key {key}: a node has one row of features, as of no time"
        assert sum(said in line for line in found) == 1


@pytest.mark.parametrize(
    ("weights", "features", "problem"),
    [
        (
            "node:year",
            "",
            '6: weights = "node:year", but there is no feature table [features.year] (there are: (none))',
        ),
        (
            "node:0",
            '[features.size]\ndtype = "float32"\n',
            'weights = "node:0" is in the main feature table, which this file does not',
        ),
        ("node:size", '[features.size]\ndtype = "float32"\n', ""),
        ("node:in_degree", "", ""),
    ],
)
def test_weights_in_a_feature_table_that_is_not_there_are_a_mistake(write, weights, features, problem):
    text = f"""\
[graph]
source = "sbm"
nodes = 100
edges = 500
[sampling]
weights = "{weights}"
method = "weighted"
fanouts = [3]
{features}[[train]]
name = "sage"
layers = 1
feature_table = "{"size" if features else ""}"
"""
    path = write(text)
    if not problem:
        load_pipeline(path, TrainTable)
        return
    assert any(problem in mistake for mistake in mistakes(path))


def test_what_no_single_table_can_see(write):
    text = GOOD.replace('name = "b"', 'name = "a"\nlayers = 3')
    assert mistakes(write(text), TrainTable) == [
        '12: name = "a" is taken by the [[train]] of line 10; give another one',
        "13: layers = 3, but [sampling] has 2 fanouts: one is needed for each layer; one number, fanouts = 10, stands for all layers",
    ]
    assert mistakes(write(GOOD.replace("[10, 5]", "[10]")), TrainTable) == [
        f"{line}: layers = 2, but [sampling] has 1 fanouts: one is needed for each layer; one number, fanouts = 10, stands for all layers"
        for line in (9, 11)
    ]
    assert mistakes(write(GOOD.replace("[sampling]\nfanouts = [10, 5]\n", "")), TrainTable) == [
        "7: [[train]] needs a table [sampling] with fanouts and batch_size"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1: the file lacks the table [graph] with source = one of"),
        ("graph = 3", "1: the file lacks the table [graph]"),
        ("[graph]\nnodes = 3", "1: [graph] lacks the key source, one of"),
        ('[graph]\nsource = "ogb"', "1: [graph] lacks the key path"),
        ('[graph]\nsource = "edges"\nedges = ["a", 3]', "3: edges ="),
        ('[graph]\nsource = "smb"', "2: source = 'smb' is not known (did you mean 'sbm'?)"),
        ("[graph]\nsource = 5", "2: source = '5' is not known"),
        (
            GOOD.replace("[[train]]", "[train]", 1).replace('[[train]]\nname = "b"\n', ""),
            "9: train is a list of tables",
        ),
        (GOOD.replace("[10, 5]", "[]"), "8: fanouts = [] is not a list of numbers from 1"),
        (GOOD.replace("[10, 5]", "[10, 0]"), "8: fanouts = [10, 0] is not a list of numbers from 1"),
        (GOOD.replace("[10, 5]", "[10, 5]\nbatch_size = 0"), "9: batch_size = 0 is below 1"),
        (GOOD.replace("seed = 7", "seed = -7"), "2: seed = -7 is below 0"),
        ("sampling = 3\n[graph]\nsource = 'npz'\npath = 'x'", "1: [sampling] is 3, expected a table"),
        ("schedule = 3\n[graph]\nsource = 'npz'\npath = 'x'", "1: [schedule] is 3, expected a table"),
    ],
)
def test_single_mistakes(write, text, expected):
    assert mistakes(write(text))[0].startswith(expected)


@pytest.mark.parametrize(
    ("text", "line"), [("[graph\n", 1), ("a = 1\na = 2\n", 2), ("[graph]\n\nx = \n", 3), ("x = 'é\n", 1)]
)
def test_what_is_not_toml_has_its_line(write, text, line):
    path = write(text)
    with pytest.raises(InputError, match=rf"mine\.toml:{line}: not valid TOML: "):
        load_pipeline(path)


def test_bytes_that_are_no_text(write):
    path = write("")
    path.write_bytes(b"seed = 1\nname = '\xff'")
    with pytest.raises(InputError, match=r"mine\.toml:2: the text is not UTF-8"):
        load_pipeline(path)


def test_lines_that_end_as_on_windows(write):
    path = write("")
    path.write_bytes(GOOD.replace("lr = 1", "lrr = 1").replace("\n", "\r\n").encode())
    assert mistakes(path) == ["13: [[train]] has no key lrr (did you mean lr?)"]


def test_a_missing_pipeline_lists_the_names(write):
    write(GOOD)
    with pytest.raises(InputError) as caught:
        load_pipeline("mein")
    assert "did you mean mine?" in str(caught.value)
    assert all(name in caught.value.remedy for name in pipeline_files())


def test_names_of_the_users_folder_come_first(write):
    shipped = sorted(SHIPPED.glob("*.toml"))
    path = write(GOOD, shipped[0].stem)
    assert find_pipeline(shipped[0].stem) == path != shipped[0]
    assert find_pipeline(shipped[0]) == shipped[0]


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.toml")))
def test_shipped_pipelines_are_valid(name, monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPHMILL_TEST_DATA", str(tmp_path))
    monkeypatch.delenv("GRAPHMILL_PIPELINES", raising=False)
    pipeline = load_pipeline(SHIPPED / f"{name}.toml")
    assert pipeline.name == name and pipeline.sampling is not None


def test_memory_is_sizes_shares_or_auto(write):
    head = '[graph]\nsource = "sbm"\nnodes = 30\nedges = 60\n'
    memory = load_pipeline(write(f'{head}[memory]\ndevice = 0\nhost = "10%"\n')).table("memory")
    assert (memory.device, memory.host, memory.disk) == (0, "10%", "auto")
    assert load_pipeline(write(head)).table("memory") is None
    assert mistakes(write(f"{head}[memory]\ndevise = 0\n")) == ["6: [memory] has no key devise (did you mean device?)"]
    (mistake,) = mistakes(write(f'{head}[memory]\ndevice = "1GiB"\nhost = "much"\ndisk = "5x"\n'))
    assert mistake.startswith("7: host = 'much': 'much' is not a size; write \"auto\", a size such as \"2GiB\"")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("sage one", "has other characters than letters, digits, - and _"),
        ("sage/one", "has other characters"),
        ("-sage", "has other characters"),
        ("", "has other characters"),
        ("graph", "is the name of a stage"),
        ("packed_chunks", "is the name of a stage"),
        ("packed-chunks", "is the name of a stage"),
        ("raw", "is the name of a stage"),
        ("raw_features", "is the name of a stage"),
        ("preprocess", "is the name of a job of the pipeline"),
        ("train", "is the name of a job of the pipeline"),
        ("all", "is the name of a job of the pipeline"),
        ("a_b", "is taken by the [[train]] of line 10"),
    ],
)
def test_a_name_that_cannot_name_an_asset_is_refused_where_it_stands(write, name, problem):
    text = GOOD.replace('name = "a"', 'name = "a-b"').replace('name = "b"', f'name = "{name}"')
    (found,) = mistakes(write(text))
    assert found.startswith(f'12: name = "{name}" {problem}')


def test_a_feature_table_needs_a_name_that_can_be_part_of_one(write):
    (found,) = mistakes(write(GOOD + '[features."my text"]\ndtype = "float16"\n'))
    assert 'name = "my text" has other characters' in found


@pytest.mark.parametrize("other", ["[features.my_text]", '[[train]]\nname = "features_my_text"'])
def test_two_tables_whose_assets_would_have_one_op_are_refused(write, other):
    (found,) = mistakes(write(f'{GOOD}[features.my-text]\ndtype = "float16"\n{other}\n'))
    taker = "my_text" if "[features.my_text]" in other else "features_my_text"
    assert found.startswith("16:" if taker == "my_text" else "17:")
    assert f'name = "{taker}" is taken by the [features.my-text] of line 14' in found


def test_mistakes_of_all_kinds_are_reported_together(tmp_path):
    """An unknown source hides neither the keys beside it nor the other tables; a missing file is one mistake of many."""
    path = tmp_path / "wrong.toml"
    graph = '[graph]\nsource = "{}"\npath = "gone.npz"\ntrain_ratio = 3.0\n{}\n'
    rest = '[memory]\nhost = "130%"\n[[train]]\nname = "a"\nlr = -1\nepochs = "x"\n'
    for source, key, told in (
        ("npzz", "nodse = 1", ("'npzz' is not known", "[graph] has no key nodse, whatever the source")),
        ("npz", "", (f"{tmp_path / 'gone.npz'} is not there",)),
    ):
        path.write_text(graph.format(source, key) + rest)
        with pytest.raises(InputError) as caught:
            load_pipeline(path, TrainTable, files=True)
        said = str(caught.value)
        assert said.count(f"{path}:") == len(told) + 5, said  # [sampling] is missing as well
        for text in (*told, "train_ratio = 3.0", "host = '130%' is 130% of the features", "lr = -1.0", 'epochs = "x"'):
            assert text in said


def test_a_pipe_of_that_name_is_not_waited_for(tmp_path, monkeypatch):
    """Reading it would wait for a writer for ever."""
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "mine.toml").write_text(GOOD)
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))
    with pytest.raises(InputError, match="cannot be read: it is a pipe or a device"):
        load_pipeline("pipe")
    assert load_pipeline("mine").seed == 7


def test_fanouts_stand_in_a_train_table_and_one_number_stands_for_all_layers(write):
    text = GOOD.replace("fanouts = [10, 5]", "fanouts = 7").replace(
        'name = "b"', 'name = "b"\nlayers = 3\nfanouts = [3, 2, 1]'
    )
    loaded = load_pipeline(write(text.replace('name = "a"', 'name = "a"\nlayers = 4')), TrainTable)
    assert loaded.sampling is not None and loaded.sampling.fanouts == (7, 7, 7, 7)
    drawn = [model_configs(table, loaded.sampling, 0)[0].sampling for table in loaded.train]
    assert [each.fanouts for each in drawn if each] == [(7, 7, 7, 7), (3, 2, 1)]
    one = load_pipeline(write(GOOD.replace('name = "b"', 'name = "b"\nlayers = 3\nfanouts = -1')), TrainTable)
    config = model_configs(one.train[1], one.sampling, 0)[0].sampling
    assert config is not None and config.fanouts == (-1, -1, -1) and one.sampling and one.sampling.fanouts == (10, 5)


@pytest.mark.parametrize(
    ("table", "more", "mistake"),
    [
        ("fanouts = [4, 4, 4]", "", "layers = 2, but fanouts = [4, 4, 4] has 3 fanouts: one is needed for each layer"),
        (
            "fanouts = 0",
            "",
            "fanouts = [0, 0] is not a list of numbers from 1 to 2,147,483,647, or -1 for all neighbours",
        ),
        (
            'fanouts = 4\nsamples = "stored"',
            "[samples]",
            'fanouts = [4, 4], but trainer = "minibatch" with samples = "stored" beside others in [sampling] reads what was drawn',
        ),
        (
            "fanouts = 4",
            "schedule = [{ epoch = 2, fanouts = [20, 20] }]",
            "but [sampling] has a schedule of its own fan-outs",
        ),
    ],
)
def test_fanouts_of_a_table_that_cannot_be(write, table: str, more: str, mistake: str):
    text = GOOD.replace('name = "b"', f'name = "b"\n{table}')
    text = (
        text.replace("fanouts = [10, 5]", f"fanouts = [10, 5]\n{more}") if "schedule" in more else f"{text}\n{more}\n"
    )
    assert any(mistake in each for each in mistakes(write(text), TrainTable))


def test_a_full_graph_training_needs_no_other_table(write):
    graph = GOOD[: GOOD.index("[sampling]")]
    uncut = load_pipeline(
        write(
            f'{graph}[[train]]\nname = "u"\ntrainer = "fullgraph"\nnorm = "batch"\nlayers = 5\nfullgraph.mode = "device"\n'
        ),
        TrainTable,
    )
    assert set(uncut.tables) == {"graph"} and uncut.train[0].inputs == () and uncut.train[0].needs == ()
    cut = load_pipeline(write(f'{graph}[[train]]\nname = "c"\ntrainer = "fullgraph"\n'), TrainTable)
    assert cut.tables["partitions"].parts == 1 and cut.tables["chunks"].chunks_per_part == 4
    both = load_pipeline(write(f'{GOOD}[[train]]\nname = "c"\ntrainer = "fullgraph"\nlayers = 5\n'), TrainTable)
    assert both.sampling is not None and len(both.sampling.fanouts) == 2  # whose depth is not the full-graph model's
    found = mistakes(
        write(f'{graph}[chunks]\nself_term = false\n[[train]]\nname = "c"\ntrainer = "fullgraph"\n'), TrainTable
    )
    assert "set it to true, which is the default" in found[-1]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("seed = 3", "seeds = [1, 2]", "a pipeline has no seeds: it is a key of [[train]]"),
        ("batch_size = 10", "batch_size = 10\nhidden = 8", "[sampling] has no key hidden: it is a key of [[train]]"),
        ("lr = 1", "lr = 1\npaths = 3", "[[train]] has no key paths: it is a key of [sampling]"),
        ("lr = 1", 'lr = 1\ntrainer = "factored"\nstaleness = 3', "[[train]] has no key staleness"),
        (
            "lr = 1",
            'lr = 1\ntrainer = "factored"\nstaleness = 3\n[train.factored]\n',
            "[[train]] has no key staleness: it is a key of [train.factored]",
        ),
    ],
)
def test_a_key_in_another_table_is_sent_to_its_own(write, old, new, said):
    text = 'seed = 3\n[graph]\nsource = "sbm"\nnodes = 300\nedges = 900\n'
    text += '[sampling]\nfanouts = [2, 2]\nbatch_size = 10\n[[train]]\nname = "x"\nlr = 1\n'
    path = write(text.replace(old, new))
    with pytest.raises(InputError) as refused:
        load_pipeline(path, TrainTable)
    assert said in refused.value.problem
