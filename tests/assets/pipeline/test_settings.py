"""Keys that a command line sets: the text that comes out, and what is refused."""

from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.settings import with_settings
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import TINY, write_tiny

TEXT = TINY.format(name="tiny")


def test_every_train_table_or_the_named_one(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    settings = ("train.lr=0.5", "train.gcn.hidden=4", "seed=7", "graph.nodes = 100", "train.sage.model=gin")
    pipeline = load_pipeline(path, TrainTable, settings=settings)
    sage, gcn = pipeline.train
    assert (sage.lr, gcn.lr, sage.hidden, gcn.hidden, sage.model) == (0.5, 0.5, 8, 4, "gin")
    assert pipeline.seed == 7 and pipeline.graph.nodes == 100  # pyright: ignore
    assert path.read_text() == TEXT, "the file stays as it is"
    again = load_pipeline(path, TrainTable)
    path.write_text(pipeline.text)
    assert load_pipeline(path, TrainTable).train == pipeline.train != again.train
    assert "--set train.lr=0.5 --set train.gcn.hidden=4" in pipeline.reference


def test_a_table_that_is_missing_is_added_and_comments_stay() -> None:
    text = with_settings(
        f"# first\n{TEXT}", ["memory.device=10%", 'features.other.dtype="float16"', "sampling.fanouts=[1, 2]"]
    )
    assert text.startswith("# first\n") and '[memory]\ndevice = "10%"' in text and "fanouts = [1, 2]" in text
    assert '[features.other]\ndtype = "float16"' in text


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("train.lr", "--set train.lr is not KEY=VALUE"),
        ("=1", "is not KEY=VALUE"),
        ("train.nobody.lr=1", "no .* table is named nobody(?s:.*)their names are: sage, gcn"),
        ("train.sage=1", "sage"),
        ("seed.x=1", "seed is no table"),
        ("train.lrr=1", r"with --set train.lrr=1, .*(?s:.*)has no key lrr \(did you mean lr\?\)"),
        ("train.lr=fast", 'lr = "fast" is not a number'),
        ("grap.nodes=1", "a pipeline has no grap .did you mean graph"),
    ],
)
def test_what_cannot_be_set_is_refused(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_pipeline(write_tiny(tmp_path), TrainTable, settings=[setting])


@pytest.mark.parametrize("train", ["[train]\nname = 'a'", "train = 3", "train = [1, 2]", "train = 'x'"])
def test_train_that_is_no_list_of_tables_is_refused(train: str) -> None:
    with pytest.raises(InputError, match="train is no list of tables"):
        with_settings(train + "\n", ["train.lr=2"])


def test_a_setting_may_mend_the_file(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    path.write_text(TEXT.replace("nodes = 300\n", ""))
    assert load_pipeline(path, TrainTable, settings=["graph.nodes=50"]).graph.nodes == 50  # pyright: ignore


def test_several_values_make_a_table_for_each(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)

    def tables(*settings: str) -> list[tuple[str, float, int]]:
        return [(each.name, each.lr, each.hidden) for each in load_pipeline(path, TrainTable, settings=settings).train]

    assert tables("train.sage.lr=0.01, 0.5") == [("sage-lr-0_01", 0.01, 8), ("sage-lr-0_5", 0.5, 8), ("gcn", 0.003, 8)]
    both = tables("train.lr=0.01,0.5", "train.hidden=4,16")
    assert len(both) == 8 and ("gcn-lr-0_5-hidden-16", 0.5, 16) in both
    models = load_pipeline(path, TrainTable, settings=["train.gcn.model=gcn,gin"]).train
    assert [(each.name, each.model) for each in models[1:]] == [("gcn-model-gcn", "gcn"), ("gcn-model-gin", "gin")]
    seeds = load_pipeline(path, TrainTable, settings=["train.gcn.seeds=[1, 2]"]).train
    assert [each.name for each in seeds] == ["sage", "gcn"] and seeds[1].seeds == (1, 2)
    with pytest.raises(InputError, match="lr"):
        tables("train.lr=0.01,many")
