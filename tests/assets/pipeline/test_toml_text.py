"""Texts of pipeline files as editors save them, and numbers of thousands of digits in every notation and place."""

import subprocess
from itertools import product
from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.toml_text import toml_text
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable

TEXT = 'name = "größe"\n[graph]\nsource = "sbm"\n'
GOOD = """\
# Grüße
seed = 1
[graph]
source = "sbm"
nodes = 300
edges = 900
[sampling]
fanouts = [2, 2]
batch_size = 10
[[train]]
name = "x"
"""
NUMBERS = {
    "decimal": "9" * 5000,
    "grouped": "9" + "_9" * 5000,
    "negative": "-" + "9" * 5000,
    "positive": "+" + "9" * 5000,
    "hexadecimal": "0x" + "f" * 5000,
    "octal": "0o" + "7" * 6000,
    "binary": "0b" + "1" * 20_000,
    "exponent": "1e" + "9" * 5000,
    "point": "9" * 5000 + ".5",
}
PLACES = {
    "head": ("seed = 1", "seed = NUMBER"),
    "tag": ("seed = 1", "tags = { a = NUMBER }"),
    "text": ("seed = 1", "description = NUMBER"),
    "key": ("nodes = 300", "nodes = NUMBER"),
    "list": ("[2, 2]", "[NUMBER, 2]"),
    "one for all": ("[2, 2]", "NUMBER"),
    "table": ("[2, 2]", '[{ "*" = NUMBER }, 2]'),
    "unknown": ("seed = 1", "sead = NUMBER"),
    "train": ('name = "x"', 'name = "x"\nlr = NUMBER'),
    "name": ('name = "x"', "name = NUMBER"),
    "weights": ("batch_size = 10", 'batch_size = 10\nmethod = "weighted"\nweights = "node:NUMBER"'),
    "cron": ('name = "x"', 'name = "x"\n[schedule]\ncron = "NUMBER * * * *"'),
    "share": ('name = "x"', 'name = "x"\nqueue = "NUMBER%"'),
}


@pytest.mark.parametrize(("number", "place"), [*product(NUMBERS, PLACES)])
def test_a_number_of_thousands_of_digits_is_refused_in_few_words(tmp_path: Path, number: str, place: str) -> None:
    text = GOOD.replace(PLACES[place][0], PLACES[place][1].replace("NUMBER", NUMBERS[number]))
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InputError, match=r"mine\.toml:\d+: ") as refused:
        load_pipeline(tmp_path / "mine.toml", TrainTable)
    assert len(str(refused.value)) < 2000


@pytest.mark.parametrize(
    ("number", "key"),
    [*product(NUMBERS, ["seed", "graph.nodes", "train.lr", "train.seeds", "train.NUMBER.lr", "graph"])],
)
def test_the_command_line_sets_no_such_number(tmp_path: Path, number: str, key: str) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    for value in (NUMBERS[number], f"[{NUMBERS[number]}]"):
        with pytest.raises(InputError) as refused:
            load_pipeline(tmp_path / "mine.toml", TrainTable, settings=[f"{key}={value}".replace("NUMBER", value)])
        assert len(str(refused.value)) < 5000


def test_the_line_of_a_long_number_is_not_that_of_a_text_of_digits(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=":2: a number has thousands"):
        toml_text(tmp_path, f'a = "{"9" * 5000}"\nb = {"9" * 5000}\n'.encode())


def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD, encoding="utf-8-sig")
    assert load_pipeline(path, TrainTable).text == GOOD
    assert load_pipeline(path, TrainTable, settings=["seed=3"]).seed == 3


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "latin-1", "cp1252"]
)
def test_other_encodings_are_converted_by_the_remedy(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "my file.toml"
    path.write_bytes(TEXT.encode(encoding))
    with pytest.raises(InputError, match="the text is not UTF-8") as caught:
        toml_text(path, path.read_bytes())
    command = caught.value.remedy.partition("for example: ")[2].partition(", or with")[0]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    assert toml_text(path, (tmp_path / "NEW.toml").read_bytes()) == TEXT


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("\n", "\r"), "lines end in \\\\r alone"),
        (lambda text: text.replace('"sbm"', "\u201csbm\u201d"), "a.toml:3: the line has the quote \u201c"),
        (lambda text: text.replace('"sbm"', "\u2018sbm\u2019"), "a.toml:3: the line has the quote \u2018"),
        (lambda text: text.replace(" = ", "\u00a0= ", 1), "a.toml:1: the line has a blank that does not break"),
        (lambda text: text.replace("source", "\u200bsource"), "a.toml:3: the line has a blank of no width"),
        (lambda text: text.replace("source", "\ufeffsource"), "a.toml:3: the line has a byte-order mark"),
        (lambda text: text.replace("source", "sou\0rce"), "a.toml:3: the line has zero bytes"),
        (lambda text: text.replace('"größe"', '"\u201egröße\u201c" x'), "a.toml:1: not valid TOML"),
    ],
)
def test_what_no_eye_sees_is_named(change, said: str) -> None:
    with pytest.raises(InputError, match=said):
        toml_text(Path("a.toml"), change(TEXT).encode())
