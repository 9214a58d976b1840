"""Plain text is read by a kernel, the rest by DuckDB: with the same rows, values and errors."""

from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.sources.readers import plain_text
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.plain_text import Numbers, select_numbers
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.readers.text_layout import TextForm

ROWS = "".join(f"{place},{place * 7 % 1000},{place / 8}\n" for place in range(400))
FILES = {
    "plain.csv": "a,b,c\n" + ROWS,
    "no end.csv": "a,b,c\n" + ROWS.rstrip("\n"),
    "windows.csv": ("a,b,c\n" + ROWS).replace("\n", "\r\n"),
    "windows, no end.csv": ("a,b,c\n" + ROWS.rstrip("\n")).replace("\n", "\r\n"),
    "two ends.csv": "a,b,c\n" + ROWS + "7,8,0.5\r\n",
    "quoted names.csv": '"a","b","c"\n' + ROWS,
    "a name of two lines.csv": 'a,b,"c\nd"\n' + ROWS,
    "quotes.csv": "a,b,c\n" + ROWS + '"7",8,0.5\n' + ROWS,
    "blanks.csv": "a,b,c\n" + ROWS.replace(",", " ,\t", 1),
    "blank lines.csv": "a,b,c\n" + ROWS + "\n\n",
    "odd weights.csv": "a,b,c\n" + ROWS + "1,2, 0.5\n3,4,1e-42\n5,6,nan\n" + ROWS,
    "no rows.csv": "a,b,c\n",
    "tabs.tsv": ("a,b,c\n" + ROWS).replace(",", "\t"),
    "snap.txt": "# some graph\n# a b c\n" + ROWS.replace(",", "\t"),
    "snap with comments.txt": "# some graph\n" + ROWS.replace(",", " ") + "# more\n\n" + ROWS.replace(",", "  "),
    "marked.csv": "\ufeffa,b,c\n" + ROWS,
    "only rows.csv": ROWS,
    "a letter.csv": "a,b,c\n" + ROWS + "é,8,0.5\n" + ROWS,
    "a long line.csv": "a,b,c\n" + ROWS + f"1,2,{'0' * 3000}.5\n" + ROWS,
}


def opened(duck: Duck, paths: list[Path]) -> tuple[TableFiles, list[Numbers]]:
    table = TableFiles(duck, paths, "edges", TextForm(names=("a", "b", "c")))
    first, second, *more = table.columns
    wanted = [Numbers(name=name, expression=table.integer("source_column", name)) for name in (second, first)]
    if more:
        expression = table.number("weight_column", more[0], "FLOAT")
        wanted.append(Numbers(name=more[0], expression=expression, decimal=True))
    return table, wanted


def listed(batches) -> tuple[list[tuple], list[tuple]]:
    """Returns (file, row in it, row of the table) of every row, and the rows with None for nulls."""
    places, found = [], []
    for rows in batches:
        places += [(*rows.locate(index), rows.start + index) for index in range(rows.count)]
        lists = [
            [
                None if column.nulls is not None and column.nulls[i] else repr(value)
                for i, value in enumerate(column.values.tolist())
            ]
            for column in rows.columns
        ]
        found += zip(*lists, strict=True)
    return places, found


@pytest.mark.parametrize("block", [1 << 10, 4 << 20])
@pytest.mark.parametrize(
    "names", [*([name] for name in FILES), ["plain.csv", "quotes.csv", "no end.csv"]], ids=" ".join
)
def test_rows_are_those_of_duckdb(tmp_path: Path, monkeypatch, names: list[str], block: int) -> None:
    monkeypatch.setattr(plain_text, "BLOCK_BYTES", block)
    for name in names:
        (tmp_path / name).write_bytes(FILES[name].encode())
    with Duck(tmp_path, 256 << 20, 2) as duck:
        table, wanted = opened(duck, [tmp_path / name for name in names])
        expected = listed(table.select([each.expression for each in wanted]))
        assert listed(select_numbers(table, wanted)) == expected


def test_plain_text_is_read_without_duckdb(tmp_path: Path, monkeypatch) -> None:
    paths = [
        tmp_path / name for name in ("plain.csv", "windows, no end.csv", "tabs.tsv", "snap.txt", "quoted names.csv")
    ]
    for path in paths:
        path.write_bytes(FILES[path.name].encode())
    with Duck(tmp_path, 256 << 20, 2) as duck:
        for path in paths:
            table, wanted = opened(duck, [path])
            with monkeypatch.context() as patch:
                patch.setattr(TableFiles, "select_file", None)
                assert len(listed(select_numbers(table, wanted))[1]) == 400


def test_weights_are_rounded_as_duckdb_rounds_them(tmp_path: Path, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    powers = zip(rng.integers(1, 10**15, 4000), rng.integers(-37, 22, 4000), strict=True)
    texts = [f"{digits}e{power}" for digits, power in powers]
    texts += [f"{value:.9g}" for value in rng.standard_normal(4000)] + [
        repr(value) for value in rng.random(4000).tolist()
    ]
    (tmp_path / "w.csv").write_text("a,b,c\n" + "".join(f"1,2,{text}\n" for text in texts))
    with Duck(tmp_path, 256 << 20, 2) as duck:
        table, wanted = opened(duck, [tmp_path / "w.csv"])
        expected = [rows.columns[0].values.copy() for rows in table.select([wanted[2].expression])]
        monkeypatch.setattr(TableFiles, "select_file", None)
        found = [rows.columns[2].values.copy() for rows in select_numbers(table, wanted)]
    assert np.concatenate(found).tobytes() == np.concatenate(expected).tobytes()
