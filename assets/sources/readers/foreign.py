"""Files of other formats, told by their first bytes, their name or their first lines, with the command that makes a table of them."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from graphmill.assets.sources.readers.packing import PACKED, packing
from graphmill.assets.storage.files.encodings import through
from graphmill.kernels.errors import InputError

_TO_PARQUET = "python -c \"import polars; polars.{read}({path!r}).write_parquet({path!r} + '.parquet')\""
_FROM_JSON = (
    'python -c "import json, polars; rows = json.load(open({path!r})); '
    "polars.DataFrame(rows, orient='row').write_parquet({path!r} + '.parquet')\""
)
_TO_TEXT = "python -c \"import networkx; networkx.write_edgelist(networkx.read_{form}({path!r}), {path!r} + '.txt', data=False)\""
_NODE_LINK = (
    'python -c "import json, networkx; networkx.write_edgelist(networkx.node_link_graph(json.load(open({path!r}))), '
    "{path!r} + '.txt', data=False)\""
)
_FROM_NUMPY = "python -c \"import numpy; numpy.savetxt('edges.txt', numpy.load({path!r}).T, '%d')\""
_ENTRIES = "keep its entries alone: grep -v '^%' {shell} | tail -n +2 > edges.txt"
_NEIGHBOURS = "awk '!/^%/ && n++ {{for (i = {first}; i <= NF; i += {step}) print n - 1, $i}}' {shell} > edges.txt"
_DIMACS = 'keep its edges alone: awk \'$1 == "a" || $1 == "e" {print $2, $3, $4}\' {shell} > edges.txt'
_DOT = "grep -oE '[[:alnum:]_.]+ *-[->] *[[:alnum:]_.]+' {shell} | sed -E 's/ *-[->] */ /' > edges.txt"
_FORMATS = {
    (".feather", ".arrow", ".ipc"): ("an Arrow file", _TO_PARQUET.replace("{read}", "read_ipc")),
    (".jsonl", ".ndjson"): ("lines of JSON", _TO_PARQUET.replace("{read}", "read_ndjson")),
    (".json",): ("JSON", _FROM_JSON),
    (".avro",): ("Avro", _TO_PARQUET.replace("{read}", "read_avro")),
    (".orc",): ("ORC", "write it as Parquet with the program that wrote it"),
    (".xlsx", ".xls", ".ods"): ("a spreadsheet", "save its table as CSV"),
    (".zip",): ("a zip archive", "unpack it: python -m zipfile -e {path!r} ."),
    (".tar", ".tar.gz", ".tgz"): ("a tar archive", "unpack it: python -m tarfile -e {path!r} ."),
    (".lz4",): ("packed by lz4", "unpack it: lz4 -d {path!r}"),
    (".npy",): ("an array of NumPy", f"write the edges [2, E] as text: {_FROM_NUMPY}"),
    (".npz",): ("an archive of NumPy", 'a graph in it is read with source = "npz" and path'),
    (".pt",): ("a file of torch", 'a graph of PyG in it is read with source = "pyg" and path'),
    (".pkl", ".pickle"): ("a pickle of Python", "write its table with the program that wrote it, as Parquet or CSV"),
    (".h5", ".hdf5"): ("an HDF5 file", "write its table as Parquet or CSV, for example with pandas.read_hdf"),
    (".mat",): ("a file of MATLAB", "write its edges as text: scipy.io.loadmat reads it, and numpy.savetxt writes them"),
    (".sqlite",): ("a database of SQLite", "write its table as CSV: sqlite3 -header -csv {shell} 'SELECT * FROM NAME' > NAME.csv"),
    (".mtx",): ("a matrix of Matrix Market", _ENTRIES),
    (".graph", ".metis"): ("a graph of METIS", _NEIGHBOURS.format(first=1, step=1, shell="{shell}")),
    (".adjlist",): ("an adjacency list", "awk '!/^#/ {for (i = 2; i <= NF; i++) print $1, $i}' {shell} > edges.txt"),
    (".gr", ".dimacs"): ("a graph of DIMACS", _DIMACS),
    (".tgf",): ("a graph in TGF", "keep its edges alone: sed '1,/^#/d' {shell} > edges.txt"),
    (".graphml",): ("GraphML", _TO_TEXT.replace("{form}", "graphml")),
    (".gexf",): ("GEXF", _TO_TEXT.replace("{form}", "gexf")),
    (".gml",): ("GML", _TO_TEXT.replace("{form}", "gml")),
    (".net", ".paj"): ("a network of Pajek", _TO_TEXT.replace("{form}", "pajek")),
    (".g6",): ("graph6", _TO_TEXT.replace("{form}", "graph6")),
    (".s6",): ("sparse6", _TO_TEXT.replace("{form}", "sparse6")),
    (".dot", ".gv"): ("a graph of Graphviz", _DOT),
}  # fmt: skip
FOREIGN = {ending: found for endings, found in _FORMATS.items() for ending in endings}
"""Ending -> (format, remedy)."""
FOREIGN_MAGIC = {
    b"ARROW1\0\0": ".arrow",
    b"Obj\x01": ".avro",
    b"PK\x03\x04": ".zip",
    b"\x04\x22\x4d\x18": ".lz4",
    b"\x93NUMPY": ".npy",
    b"\x89HDF\r\n": ".h5",
    b"MATLAB 5": ".mat",
    b"SQLite format 3\0": ".sqlite",
    b"\xd0\xcf\x11\xe0": ".xls",
    **dict.fromkeys((b"\x80\x02", b"\x80\x03", b"\x80\x04\x95", b"\x80\x05\x95"), ".pkl"),
}
_MATRIX = (
    'write its entries: python -c "import numpy, scipy.io; m = scipy.io.mmread({path!r}); i, j = m.nonzero(); '
    "numpy.savetxt('edges.csv', numpy.c_[i, j, m[i, j]], '%.17g', ',', header='src,dst,weight', comments='')\""
)
FIRST_LINES = {
    r"%%MatrixMarket\s+matrix\s+coordinate.*": FOREIGN[".mtx"],
    r"(<\?xml.*)?<graphml.*": FOREIGN[".graphml"],
    r"(<\?xml.*)?<gexf.*": FOREIGN[".gexf"],
    r"<\?xml.*": ("XML", "write its table as CSV; or download the file itself if this is a server's answer"),
    r"(graph\s*\[.*|Creator\s+\".*)": FOREIGN[".gml"],
    r"\*(vertices|network)\b.*": FOREIGN[".net"],
    r">>graph6<<.*": FOREIGN[".g6"],
    r">>sparse6<<.*": FOREIGN[".s6"],
    r"(strict\s+)?(di)?graph\b[^{]*\{.*": FOREIGN[".dot"],
    r"%%MatrixMarket.*": ("a dense matrix of Matrix Market", _MATRIX),
    r"<(!doctype|html|head|body)\b.*": ("a web page", "download the file itself; the page may say why it was not sent"),
    r"version https://git-lfs\..*": ("a pointer of Git LFS in place of the file", "fetch the file: git lfs pull"),
}
"""Pattern of the first line of a text -> (format, remedy)."""

DIMACS_PROBLEM, DIMACS_LINE = re.compile(r"p\s+[a-z]+\s+\d+.*"), re.compile(r"[pc]\b.*|[aend](\s+[-\d.]+)+")
LISTS = ("lists or tuples of Python", "keep what is in them: tr -d '[]() ' < {shell} > edges.csv")
FRAME_LINE = re.compile(r"(?=.*[-=─═]{2})[-=+|: ┌┬┐├┼┤└┴┘╞╪╡│─═╭╮╰╯]+")
FRAMED = (
    "a table as a terminal or a document shows it",
    "write it as CSV with its program (psql --csv, mysql --batch); or, if | separates its fields: grep '|' {shell} | "
    "grep '[[:alnum:]]' | tr -d ' ' | sed -E 's/^\\|//; s/\\|$//; s/\\|/,/g' > NEW.csv",
)
"""The line between the names and the rows of a table in a frame, and what such a text is."""
LIST_LINE = re.compile(r"[\[(][^\[\](){}]*[\])],?")
TOOLS = {"gzip": "gzip -dc", "zstd": "zstd -dc", "bzip2": "bzip2 -dc", "xz": "xz -dc"}
TR = "tr -d '\\000'"


def foreign(path: Path, start: bytes) -> tuple[str, str] | None:
    """Returns (format, remedy) of a file of a format that is not read, None for others."""
    name = path.name.lower()
    ending = next((ending for magic, ending in FOREIGN_MAGIC.items() if start.startswith(magic)), None)
    if start.startswith(b"ORC") and _last_bytes(path, 4)[:3] == b"ORC":  # a table of text may begin with ORCID
        ending = ".orc"
    if ending == ".zip" and (
        office := next((each for each in (".xlsx", ".ods", ".npz", ".pt") if name.endswith(each)), "")
    ):
        ending = office
    bare = name.removesuffix(next((each for each in PACKED if name.endswith(each)), ""))
    ending = ending or next((each for each in FOREIGN if name.endswith(each) or bare.endswith(each)), None)
    return None if ending is None else _for(path, *FOREIGN[ending])


def refuse_other_text(path: Path, lines: Sequence[str]) -> None:
    """Refuses text whose first lines say that it is not a table; raises InputError if they are of another format, or have zero bytes."""
    given = [line.strip("\ufeff \t\r\n") for line in lines if line.strip()]
    if any("\0" in line for line in given):
        problem = f"{path}: has zero bytes between its letters, so it is not text, or damaged"
        raise InputError(problem, f"copy it again; or leave them out: {through(str(path), TR)} > NEW.csv")
    if (found := _format_of(given)) is not None:
        problem, remedy = _for(path, *found)
        raise InputError(f"{path}: looks like {problem}, which is not read", remedy)


def _format_of(lines: Sequence[str]) -> tuple[str, str] | None:
    """Returns (format, remedy) of a text by its first lines; None if it may be a table."""
    if (found := _json(lines)) is not None:
        return found
    first = " ".join(lines) if lines[0].startswith("<") else lines[0]
    for pattern, found in FIRST_LINES.items():
        if re.fullmatch(pattern, first, re.IGNORECASE):
            return found
    if any(map(FRAME_LINE.fullmatch, lines[:4])):
        return FRAMED
    if lines[0] == "graph" and lines[1:2] == ["["]:
        return FOREIGN[".gml"]
    if any(map(DIMACS_PROBLEM.fullmatch, lines)) and all(map(DIMACS_LINE.fullmatch, lines)):
        return FOREIGN[".gr"]
    if "#" in lines[1:] and not lines[0].startswith("#"):
        return FOREIGN[".tgf"]
    return LISTS if all(map(LIST_LINE.fullmatch, lines)) else None


def _json(lines: Sequence[str]) -> tuple[str, str] | None:
    """Returns (format, remedy) of text that begins as JSON does; None for others."""
    if not lines[0].startswith(("{", "[{")) and lines[0] != "[":
        return None
    try:
        record = json.loads(lines[0])
    except ValueError:
        record = None
    if isinstance(record, dict) and len(lines) > 1:
        return FOREIGN[".jsonl"]
    text = "".join(lines)
    if '"links"' in text or '"nodes"' in text:
        return "a graph of JSON", _NODE_LINK
    return FOREIGN[".json"] if '"' in text else None


def _for(path: Path, what: str, remedy: str) -> tuple[str, str]:
    """Returns a format and its remedy for a file, which is unpacked first."""
    plain, unpacked = str(path), ""
    if (kind := packing(path)) != "none" and "tar archive" not in what:
        plain = f"{path}.txt"
        unpacked = f"unpack it, {TOOLS[kind]} {quote(str(path))} > {quote(plain)}, then "
    return what, unpacked + remedy.replace("{path!r}", repr(plain)).replace("{shell}", quote(plain))


def _last_bytes(path: Path, count: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(-min(count, path.stat().st_size), os.SEEK_END)
        return file.read()
