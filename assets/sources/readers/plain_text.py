"""Columns of numbers of table files: those of plain text by a kernel (kernels/graph/text_columns.py), all others by DuckDB.

Edge lists are nearly always plain: numbers and separators, and nothing else. DuckDB takes about a second for a million rows of them, since
it makes a text of each field and compares it with that of its number. The kernel is an order of magnitude faster and gives up at the first
block with a line that is not plain; DuckDB then reads the file, without the rows that are known already, and says what is wrong. So rows,
values and errors are the same either way.

Peak memory: BLOCK_BYTES, and the columns of as many bytes of text.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO

from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.packing import packing
from graphmill.assets.sources.readers.table_files import TableFiles, TableRows
from graphmill.assets.sources.readers.text_layout import TextLayout
from graphmill.kernels.graph.text_columns import SEPARATORS, LineForm, text_columns

BLOCK_BYTES = 4 << 20
"""Bytes that are read at a time; a file with a longer line is not plain."""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """A column that is wanted.

    Attributes:
        expression: SQL expression of its values.
        decimal: whether they are float32 rather than whole numbers; None if they are not numbers, which only DuckDB reads.
    """

    name: str
    expression: str
    decimal: bool | None = False


def select_numbers(table: TableFiles, wanted: Sequence[Numbers]) -> Iterator[TableRows]:
    """Yields the batches of all files in order, as `TableFiles.select` does for the expressions of `wanted`."""
    start, expressions = 0, [each.expression for each in wanted]
    for file in range(len(table.paths)):
        rows, whole = 0, False
        if (plain := _plain_columns(table, file, wanted)) is not None:
            rows, whole = yield from _plain_rows(table, file, plain, start)
        if not whole:
            for batch in table.select_file(file, expressions, start, known=rows):
                yield batch
                rows = batch.first + batch.count
        start += rows


def _plain_columns(table: TableFiles, file: int, wanted: Sequence[Numbers]) -> list[tuple[int, bool]] | None:
    """Returns the columns as the kernel takes them; None if DuckDB has to read the file."""
    if not table.is_csv or packing(table.paths[file]) != "none":
        return None
    layout = table.layouts[file]
    columns = [(layout.names.index(each.name), each.decimal) for each in wanted if each.name in layout.names]
    distinct = len({place for place, _ in columns}) == len(wanted) and len(layout.comment) <= 1
    if not distinct or layout.delimiter not in SEPARATORS:
        return None
    plain = [(place, decimal) for place, decimal in columns if decimal is not None]
    return plain if len(plain) == len(columns) else None


def _plain_rows(
    table: TableFiles, number: int, columns: list[tuple[int, bool]], start: int
) -> Generator[TableRows, None, tuple[int, bool]]:
    """Yields the rows of a text file up to the first block that is not plain. Returns (number of rows, whether these are all)."""
    rows, buffer = 0, bytearray(BLOCK_BYTES + 2)
    with FileIO(table.paths[number]) as file:
        held = file.readinto(memoryview(buffer)[:BLOCK_BYTES]) or 0
        begin = _begin(buffer, held, table.layouts[number])
        if begin is None:
            return 0, False
        first, form = begin
        while held > first:
            last = buffer.rfind(b"\n", first, held) + 1
            arrays = text_columns(buffer, first, last - first, form, columns, table.duck.threads) if last else None
            if arrays is None:
                return rows, False
            yield TableRows(number, rows, start + rows, len(arrays[0]), [Column(each) for each in arrays])
            rows += len(arrays[0])
            held, first = _refill(file, buffer, last, held, form), 0
    return rows, True


def _begin(buffer: bytearray, held: int, layout: TextLayout) -> tuple[int, LineForm] | None:
    """Returns (place of the first row, form of the lines) of a file whose first bytes are there; None if it is not plain."""
    first, end = 0, buffer.find(b"\n", 0, held)
    carriage = end > 0 and buffer[end - 1] == ord("\r")
    for _ in range(layout.skipped + layout.header):
        after = buffer.find(b"\n", first, held) + 1
        if not after or (not layout.split and buffer.count(b'"', first, after) % 2):  # a name may hold an end of a line
            return None
        first = after
    comment = layout.comment if layout.split else ""
    return first, LineForm(separator=layout.delimiter, num_fields=len(layout.names), comment=comment, carriage=carriage)


def _refill(file: FileIO, buffer: bytearray, last: int, held: int, form: LineForm) -> int:
    """Moves the bytes behind `last` to the front and reads more; the last line of a file gets an end. Returns how many bytes there are."""
    kept = held - last
    buffer[:kept] = buffer[last:held]
    held = kept + (file.readinto(memoryview(buffer)[kept:BLOCK_BYTES]) or 0)
    if 0 < held == kept:
        end = b"\r\n" if form.carriage else b"\n"
        buffer[held : held + len(end)] = end
        held += len(end)
    return held
