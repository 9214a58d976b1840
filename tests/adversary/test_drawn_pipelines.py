"""What `validate` accepts runs, and what a refusal says works, for pipelines drawn from the schema."""

import re
import time
import warnings
from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.sizes import parse_size
from graphmill.jobs.commands.pipelines.checked import require_runnable
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.adversary.attack import REFUSED, SOUND
from tests.adversary.drawn_pipelines import (
    begin,
    drawn_text,
    follow_once,
    followed,
    load,
    one_step,
    validated,
    wrong_texts,
)
from tests.adversary.remedies import mistakes_of
from tests.laws.asked import MODULE, PACKED_ROWS, WIDE, Ask, pipeline_text
from tests.laws.made import Made

SHORT, LONG, REMEDIES = 40, 3000, 120
"""Numbers of files."""
TIGHT = {"device": "2%", "host": "2%", "disk": 1}
"""Budgets of which the one of the disk holds nothing."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("drawn"))


def steps(made: Made, seeds: range) -> list[str]:
    """How the files of seeds end; those with a model of one's own are left out of the short form, since each takes a process."""
    texts = [drawn_text(seed) for seed in seeds]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [one_step(made, text) for text in texts if len(seeds) > SHORT or f'model = "{MODULE}' not in text]


def test_what_is_accepted_makes_a_step(made: Made) -> None:
    ends = steps(made, range(SHORT))
    assert ends.count(SOUND) > 5 < ends.count(REFUSED)


@pytest.mark.slow("3,000 drawn pipelines, where the suite tries 40")
def test_what_is_accepted_makes_a_step_long(made: Made) -> None:
    ends = steps(made, range(LONG))
    assert ends.count(SOUND) > 500 < ends.count(REFUSED)


def test_every_remedy_leads_on() -> None:
    assert sum(followed(drawn_text(seed)) for seed in range(REMEDIES)) > 20


def test_the_remedy_of_every_key_leads_on() -> None:
    assert sum(followed(text) for text in wrong_texts()) > 10


@pytest.mark.parametrize("key", ["io_depth = 3", 'io_window = "2MiB"'])
def test_a_clash_is_told_at_the_line_of_the_key_that_it_names(key: str) -> None:
    """Of several keys of one option, others may be in the file with the values that they have by default."""
    head = pipeline_text("fresh-distributed", Ask())
    lines = head.replace('trainer = "fresh-distributed"', f'trainer = "fresh-distributed"\nio = "io_uring"\n{key}')
    with pytest.raises(InputError) as refused:
        load(lines)
    where, said = mistakes_of(refused.value)[0]
    assert said.startswith(key) and lines.splitlines()[where - 1] == key


@pytest.mark.parametrize("trainer", TECHNIQUES)
def test_a_queue_of_any_size_trains(made: Made, trainer: str) -> None:
    ask = Ask(keys={"eval": "sampled"}, sampling={"fanouts": [4, 3], "batch_size": 32, "reuse": 2})
    assert one_step(made, pipeline_text(trainer, ask | Ask(keys={"queue": "20"}))) == SOUND


@pytest.mark.parametrize(
    ("trainer", "own"), [*((name, {}) for name in TECHNIQUES), ("distributed", {"scheme": "vanilla"})]
)
def test_weights_and_types_that_a_training_does_not_read_are_no_mistake(
    made: Made, trainer: str, own: dict[str, str]
) -> None:
    graph = {"source": "pyg", "path": "typed.pt", "weight": "w"}
    asked = Ask(graph=graph, own=own)
    assert one_step(made, pipeline_text(trainer, asked)) == SOUND


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (Ask(keys={"class_weights": [1, 2]}), "has 2 entries"),
        (Ask(keys={"workspace": "100"}), "a step takes at least"),
        (Ask(keys={"metrics_to": ["mlflow"]}), "is not installed"),
        (Ask(keys={"device": "cuda"}), "has no GPU"),
        (Ask(graph={"source": "sbm", "nodes": 240, "edges": 900, "classes": 3, "labelled": 0.0}), "no training nodes"),
        (Ask(graph={"source": "pyg", "path": "typed.pt"}, keys={"class_weights": [1, 2, 3, 4]}), "of the 3 classes"),
        (Ask(graph=WIDE, keys={"input": "typed", "embedding": "node"}), "all types of the graph have features"),
    ],
)
def test_what_a_training_refuses_is_refused_before(
    made: Made, monkeypatch: pytest.MonkeyPatch, ask: Ask, said: str
) -> None:
    monkeypatch.setattr("graphmill.jobs.commands.pipelines.checked.num_gpus", lambda: 0)
    monkeypatch.setattr("graphmill.trainers.record.metrics.find_spec", lambda name: None)
    with pytest.raises(InputError, match=said):
        require(made, pipeline_text("minibatch", ask))


@pytest.mark.parametrize(
    ("trainer", "ask"),
    [
        ("minibatch", Ask(keys={"workspace": "100"})),
        ("minibatch", Ask(graph=WIDE)),
        ("disk", Ask(tables={"memory": TIGHT})),
        ("disk", Ask(tables={"memory": TIGHT, "cache_plan": {"segment_size": 1}})),
    ],
)
def test_the_remedy_of_a_refusal_without_a_line_leads_on(made: Made, trainer: str, ask: Ask) -> None:
    text = pipeline_text(trainer, ask)
    with pytest.raises(InputError) as refused:
        require(made, text)
    assert follow_once(lambda text: begin(made, validated(made, text)), text, refused.value)


@pytest.mark.parametrize(
    ("trainer", "keys"),
    [
        *((trainer, keys) for trainer in TECHNIQUES for keys in ({}, {"optimizer": "sgd"}, {"hidden": 64})),
        *(("minibatch", {"model": model}) for model in ("gcn", "gin", "gat")),
    ],
    ids=str,
)
def test_a_workspace_that_is_refused_would_not_do(
    made: Made, monkeypatch: pytest.MonkeyPatch, trainer: str, keys: dict[str, object]
) -> None:
    """A training with the workspace that `validate` just refuses ends for lack of it."""
    groups = {} if TECHNIQUES[trainer].whole_graph else {"accumulate": 1}
    text = pipeline_text(trainer, Ask(keys={**keys, **groups, "workspace": "100"}))
    with pytest.raises(InputError, match="a step takes at least") as refused:
        require(made, text)
    found = re.search(r"at least ([\d.]+ \w+)", refused.value.problem)
    assert found is not None
    monkeypatch.setattr("graphmill.trainers.recipe.known_mistakes.workspace_mistake", lambda *given: None)
    just_below = text.replace('"100"', f'"{parse_size(found[1]) * 49 // 50}"')
    with pytest.raises(InputError, match="workspace"):
        begin(made, validated(made, just_below))


@pytest.mark.parametrize("reuse", [1, 3])
@pytest.mark.parametrize("size", [0, 1, 2, 4, 7])
def test_a_disk_that_is_refused_would_not_do(
    made: Made, monkeypatch: pytest.MonkeyPatch, size: int, reuse: int
) -> None:
    def text(disk: int | str) -> str:
        tables = {"memory": {**TIGHT, "disk": disk}, "cache_plan": {"segment_size": size}}
        return pipeline_text("disk", Ask(sampling={"reuse": reuse}, tables=tables))

    with pytest.raises(
        InputError, match=f"{f'segment_size = {size}' if size else 'one disk cache'}.* at least"
    ) as refused:
        require(made, text(1))
    with monkeypatch.context() as patched:
        patched.setattr("graphmill.jobs.commands.pipelines.checked.disk_mistake", lambda sizes: None)
        needed = parse_size(re.findall(r"at least ([\d.]+ \w+)", refused.value.problem)[0])
        with pytest.raises(InputError, match=r"of disk, the budget has|is too small: with one disk cache"):
            begin(made, validated(made, text(needed * 49 // 50)))
    require(made, text("9x"))


@pytest.mark.parametrize("host", [1, "99%", "100%"])
@pytest.mark.parametrize(
    ("trainer", "asked"),
    [
        ("minibatch", Ask()),
        ("fullgraph", Ask()),
        ("distributed", Ask()),
        ("fresh-distributed", Ask()),
        ("distributed", Ask(keys={"features": "mapped"})),
        ("distributed", Ask(keys={"cache": "none"})),
        ("distributed", PACKED_ROWS),
    ],
    ids=str,
)
def test_rows_in_memory_are_refused_exactly_if_the_training_refuses_them(
    made: Made, monkeypatch: pytest.MonkeyPatch, trainer: str, asked: Ask, host: int | str
) -> None:
    memory = {**asked.tables.get("memory", {}), "host": host}
    tables = {"memory": memory} | ({} if trainer == "fullgraph" else {"hotness": {"policy": "degree"}})
    text = pipeline_text(trainer, Ask(keys={"features": "memory"}) | asked | Ask(tables=tables))
    pipeline = made.parse(text)
    try:
        require(made, text)
    except InputError as error:
        assert "[memory] host allows" in error.problem and host != "100%" and not asked.keys, error
        assert follow_once(lambda text: begin(made, validated(made, text)), text, error)
        monkeypatch.setattr("graphmill.trainers.recipe.known_mistakes.memory_mistake", lambda *given: None)
        with pytest.raises(InputError, match=r"holds .* where .memory. host allows"):
            begin(made, pipeline)
    else:
        assert host == "100%" or asked.keys
        begin(made, pipeline)


def test_mistakes_of_the_file_the_data_and_the_training_are_told_at_once(made: Made, tmp_path: Path) -> None:
    edges, nodes = tmp_path / "edges.csv", tmp_path / "nodes.csv"
    edges.write_text("src,dst\n0,1\n1,7\n")
    nodes.write_text("id,y,f\n0,0,1\n1,one,2\n2,0,nan\n")
    graph = {"source": "edges", "edges": str(edges), "nodes": str(nodes), "label_column": "y", "features": ["f"]}
    with pytest.raises(InputError) as refused:
        require(made, pipeline_text("minibatch", Ask(graph=graph, keys={"device": "cuda"})))
    assert {"device", "row 1", "row 2", "7"} <= {
        word for word in ("device", "row 1", "row 2", "7") if word in str(refused.value)
    }


@pytest.mark.parametrize("reuse", [100_000, 2**31])
def test_a_number_of_epochs_takes_no_time(made: Made, reuse: int) -> None:
    for table in ({}, {"samples": {"epochs": reuse}}, {"samples": {}, "cache_plan": {}}):
        begun = time.monotonic()
        try:
            require(made, pipeline_text("disk", Ask(sampling={"reuse": reuse}, tables=table)))
        except InputError as error:
            assert reuse > 10**6 and "above 1,000,000" in str(error)
        assert time.monotonic() - begun < 5


def require(made: Made, text: str) -> None:
    """Asks what `validate` asks."""
    require_runnable(parse_pipeline(made.folder / "mine.toml", text.encode(), TrainTable), made.store.home)
