"""Packed text, ends of lines, damaged ends, and files of other formats; every remedy is tried."""

import bz2
import gzip
import lzma
import re
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import polars
import pytest

from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.foreign import FOREIGN
from graphmill.assets.sources.readers.packing import require_whole_zstd, unchecked_words
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.readers.text_layout import TextForm
from graphmill.jobs.commands.pipelines.inspect_source import survey_of
from graphmill.kernels.errors import InputError
from tests.assets.sources.readers.test_text_layout import built, pairs

TEXT = b"src,dst\n5,6\n6,7\n7,5\n"
WANTED = [("5", "6"), ("6", "7"), ("7", "5")]


def zstd(path: Path, sql: str = "SELECT * FROM (VALUES (5, 6), (6, 7), (7, 5)) t(src, dst)") -> bytes:
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({sql}) TO '{path}' (FORMAT csv, COMPRESSION zstd)")
    return path.read_bytes()


PACKED = {
    "gz": gzip.compress(TEXT), "bz2": bz2.compress(TEXT), "xz": lzma.compress(TEXT),
    "two members": gzip.compress(TEXT[:12]) + gzip.compress(TEXT[12:]),
    "zeros behind it": gzip.compress(TEXT) + bytes(20_000),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("file", ["e.csv.gz", "e.csv", "e.txt", "e.csv.bz2"])
def test_the_bytes_decide_how_text_is_packed(tmp_path: Path, name: str, file: str) -> None:
    assert pairs(built(tmp_path / file, PACKED[name])) == WANTED


@pytest.mark.parametrize("file", ["e.csv.zst", "e.csv", "e.csv.gz", "e.tsv.zstd"])
def test_zstd(tmp_path: Path, file: str) -> None:
    assert pairs(built(tmp_path / file, zstd(tmp_path / "made.zst"))) == WANTED


def test_plain_text_that_is_named_as_packed(tmp_path: Path) -> None:
    assert pairs(built(tmp_path / "e.csv.gz", TEXT)) == WANTED


@pytest.mark.parametrize("rows", [3, 200_000])
def test_a_zstd_file_that_was_cut_is_refused(tmp_path: Path, rows: int) -> None:
    """DuckDB takes its end for the end of the text, and would build a smaller graph."""
    whole = zstd(tmp_path / "made.zst", f"SELECT range AS src, range + 1 AS dst FROM range({rows})")
    require_whole_zstd(tmp_path / "made.zst")
    places = {1, 3, 4, 5, 9, len(whole) // 2, len(whole) - 4, len(whole) - 1} & set(range(1, len(whole)))
    for place in sorted(places):
        with pytest.raises(InputError):
            built(tmp_path / f"cut-{place}" / "e.csv.zst", whole[:place])
    built(tmp_path / "twice" / "e.csv.zst", whole + b"\x50\x2a\x4d\x18\x04\0\0\0note")


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
def test_zstd_files_without_a_checksum_are_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_bytes(TEXT)
    options = {"bare": "--no-check", "checked": "--check"}
    paths = [tmp_path / f"{name}.csv.zst" for name in options]
    for path, option in zip(paths, options.values(), strict=True):
        subprocess.run(["zstd", "-q", option, str(tmp_path / "e.csv"), "-o", str(path)], check=True)
    assert unchecked_words([tmp_path / "e.csv", paths[1]]) == []
    (said,) = unchecked_words(paths)
    assert said.startswith("checksums (bare.csv.zst has none: ") and said.endswith("zstd --check)")
    assert any(said in line for line in survey_of(str(paths[0])).notes)
    mixed = tmp_path / "mixed.csv.zst"
    mixed.write_bytes(paths[1].read_bytes() + paths[0].read_bytes())
    assert unchecked_words([mixed, *paths]) == [
        said.replace("bare.csv.zst has none", "2 files, mixed.csv.zst among them, have none")
    ]
    assert pairs(built(tmp_path / "one" / "e.csv.zst", paths[1].read_bytes())) == WANTED


@pytest.mark.parametrize("name", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("cut", [1, 6, 12])
def test_packed_text_that_was_cut_is_refused(tmp_path: Path, name: str, cut: int) -> None:
    with pytest.raises(InputError, match=r"damaged or cut short") as caught:
        built(tmp_path / f"e.csv.{name}", PACKED[name][:-cut])
    assert "copy it again" in caught.value.remedy


MIXED = {
    "first \\r\\n": b"src,dst\r\n5,6\n6,7\r\n7,5\n",
    "first \\n": b"src,dst\n5,6\r\n6,7\n7,5\r\n",
    "last line": b"src,dst\r\n5,6\r\n6,7\r\n7,5\n",
    "quotes": b'src,dst,t\r\n5,6,"a\nb"\n6,7,"c\r\nd"\r\n7,5,e\n',
    "a list": b"# c\r\n5 6\n6 7\r\n7 5\n",
    "only \\r": b"src,dst\r5,6\r6,7\r7,5\r",
}


@pytest.mark.parametrize("name", MIXED)
def test_ends_of_lines_may_differ(tmp_path: Path, name: str) -> None:
    assert pairs(built(tmp_path / ("e.txt" if name == "a list" else "e.csv"), MIXED[name])) == WANTED


def test_copies_lie_in_scratch_space_and_go(tmp_path: Path) -> None:
    made = built(tmp_path / "e.csv", MIXED["quotes"])
    assert [path for path in tmp_path.rglob("*unpacked*")] == []
    assert (tmp_path / "e.csv").read_bytes() == MIXED["quotes"]
    assert made.verify() == []


def run(remedy: str, folder: Path) -> None:
    command = remedy.replace("python -", f"{sys.executable} -").split(", and name the new file")[0].split(" (or -f")[0]
    command = command.partition("NEW.csv")[0] + "NEW.csv" if "NEW.csv" in command else command
    for lead in (
        "give them one end: ",
        "unpack it: ",
        "keep its entries alone: ",
        "behind its end: ",
        "for example: ",
        "leave them out: ",
    ):
        command = command.partition(lead)[2] or command
    subprocess.run(["sh", "-c", command], cwd=folder, check=False, capture_output=True)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("e.csv", b"src,dst\n5,6\r6,7\n7,5\n", "lines end in several ways"),
        ("e.csv.gz", gzip.compress(MIXED["first \\n"]), "lines end in several ways"),
        ("e.csv.gz", gzip.compress(TEXT) + b"\0\0", "gzip file is damaged"),
        ("e.csv.gz", gzip.compress(TEXT) + b"other bytes", "gzip file is damaged"),
        ("e.csv", b"src,dst,n\n5,6,\xe9\n6,7,b\n7,5,c\n", "not UTF-8"),
        ("e.csv.gz", gzip.compress(b"src,dst,n\n5,6,\xe9\n6,7,b\n7,5,c\n"), "not UTF-8"),
        ("e.csv", TEXT.decode().encode("utf-16"), "not UTF-8, but UTF-16"),
        ("e.txt", TEXT.decode().encode("utf-16-le"), "not UTF-8, but UTF-16LE"),
        ("e.txt", TEXT.decode().encode("utf-32"), "not UTF-8, but UTF-32"),
        ("e.csv.gz", gzip.compress(TEXT.decode().encode("utf-16-be")), "not UTF-8, but UTF-16BE"),
        ("e.csv", TEXT.replace(b"6", b"6\0"), "zero bytes"),
    ],
    ids=[
        "lines end alone",
        "packed",
        "short zeros behind it",
        "bytes behind it",
        "latin-1",
        "packed latin-1",
        "UTF-16",
        "UTF-16 without mark",
        "UTF-32",
        "packed UTF-16",
        "zero bytes",
    ],
)
def test_a_remedy_that_makes_new_text_works(tmp_path: Path, file: str, content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        built(tmp_path / "old one" / file, content)
    run(caught.value.remedy, tmp_path)
    assert pairs(built(tmp_path / "new" / "e.csv", (tmp_path / "NEW.csv").read_bytes())) == WANTED


FRAME = polars.DataFrame({"src": [5, 6, 7], "dst": [6, 7, 5]})
GML = 'graph [ node [ id 0 label "5" ] node [ id 1 label "6" ] edge [ source 0 target 1 ] ]'
OTHERS = {
    ".feather": FRAME.write_ipc,
    ".arrow": FRAME.write_ipc,
    ".ipc": FRAME.write_ipc,
    ".ndjson": FRAME.write_ndjson,
    ".jsonl": FRAME.write_ndjson,
    ".json": FRAME.write_json,
    ".avro": FRAME.write_avro,
    ".mtx": lambda path: path.write_text(
        "%%MatrixMarket matrix coordinate pattern general\n% c\n7 7 3\n5 6\n6 7\n7 5\n"
    ),
}


@pytest.mark.parametrize("ending", OTHERS)
def test_a_remedy_for_another_format_works(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"my edges{ending}"
    OTHERS[ending](path)
    with pytest.raises(InputError, match="which is not read") as caught:
        built(path, path.read_bytes())
    run(caught.value.remedy, tmp_path)
    new = tmp_path / "edges.txt" if ending == ".mtx" else path.with_name(f"{path.name}.parquet")
    assert pairs(built(tmp_path / "new" / new.name, new.read_bytes())) == WANTED


@pytest.mark.parametrize("ending", [".zip", ".tar", ".tar.gz", ".tgz"])
def test_archives_are_unpacked_by_their_remedy(tmp_path: Path, ending: str) -> None:
    (tmp_path / "e.csv").write_bytes(TEXT)
    module = "zipfile" if ending == ".zip" else "tarfile"
    path = tmp_path / f"x{ending}"
    subprocess.run([sys.executable, "-m", module, "-c", path, "e.csv"], cwd=tmp_path, check=True)
    (tmp_path / "e.csv").unlink()
    with pytest.raises(InputError, match=r"a (zip|tar) archive, which is not read") as caught:
        built(path, path.read_bytes())
    run(caught.value.remedy, tmp_path)
    assert (tmp_path / "e.csv").read_bytes() == TEXT


@pytest.mark.parametrize("form", ["graphml", "gexf", "gml"])
def test_networkx_writes_a_list_of_its_formats(tmp_path: Path, form: str) -> None:
    networkx = pytest.importorskip("networkx")
    graph = networkx.DiGraph([(5, 6), (6, 7), (7, 5)])
    path = tmp_path / f"g.{form}"
    getattr(networkx, f"write_{form}")(graph, path)
    with pytest.raises(InputError, match="which is not read") as caught:
        built(path, path.read_bytes())
    run(caught.value.remedy, tmp_path)
    assert pairs(built(tmp_path / "new" / "g.txt", (tmp_path / f"g.{form}.txt").read_bytes())) == WANTED


def test_every_other_format_has_a_remedy() -> None:
    for what, remedy in FOREIGN.values():
        assert what and remedy and not re.search(r"rename|copy it again", remedy)


def test_text_that_begins_like_another_format_is_text(tmp_path: Path) -> None:
    text = b"ORCID,dst\n5,6\n6,7\n7,5\n"
    assert pairs(built(tmp_path / "e.csv", text, source_column="ORCID")) == WANTED
    assert pairs(built(tmp_path / "f.csv", text.replace(b"ORCID", b"ARROW1"), source_column="ARROW1")) == WANTED
    (tmp_path / "g.csv").write_bytes(b"ORC\x0a\x02\x00rows and stripes\x08\x03ORC\x18")
    with pytest.raises(InputError, match="is ORC, which is not read"):
        built(tmp_path / "g.csv", (tmp_path / "g.csv").read_bytes())


def test_a_copy_that_was_not_finished_is_never_read(tmp_path: Path) -> None:
    lines = b"".join(b"%d,%d\n" % (row, row + 1) for row in range(200_000))
    (tmp_path / "e.csv.xz").write_bytes(lzma.compress(b"src,dst\n" + lines)[:-200])
    with Duck(tmp_path, 256 << 20, 1) as duck:
        for _ in range(2):
            with pytest.raises(InputError, match="xz file is damaged or cut short"):
                TableFiles(duck, [tmp_path / "e.csv.xz"], "edges", TextForm()).count()
