"""Tables of text. What does not fit into the terminal becomes lines of name and value: nothing is cut, and no row is folded."""

from collections.abc import Iterator, Sequence

from graphmill.jobs.figures.plain_table import PlainTable


def terminal_columns() -> int | None:
    """Returns the number of columns of the terminal that gets standard output; None for a file or a pipe, which has room for any row."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else None


def aligned_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    *,
    room: int | None = None,
    rule: bool = False,
    indent: str = "",
) -> list[str]:
    """Returns the lines of a table.

    Args:
        room: number of columns of the terminal; None for any number. A wider table becomes lines of name and value.
    """
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    if room is not None and len(indent) + sum(widths) + 2 * (len(widths) - 1) > room:
        return [line for row in rows for line in named_values(columns, row, indent)]
    drawn = [["-" * width for width in widths]] if rule else []
    return [indent + _aligned(cells, widths, right) for cells in (columns, *drawn, *rows)]


def aligned(table: PlainTable, *, room: int | None = None, indent: str = "") -> list[str]:
    """Returns the lines of a table without its title; `room` and `indent` as in `aligned_rows`."""
    right = [column not in table.left for column in table.columns]
    return aligned_rows(table.columns, table.rows, right, room=room, rule=True, indent=indent)


def named_values(columns: Sequence[str], row: Sequence[str], indent: str = "") -> Iterator[str]:
    """Yields a row as lines: the first cell, then name and value of each other cell below it."""
    yield f"{indent}{row[0]}" if row[0] else f"{indent}{columns[0]}"
    width = max(map(len, columns[1:]), default=0)
    for name, value in zip(columns[1:], row[1:], strict=True):
        if value:
            yield f"{indent}  {name:{width}}  {value}"


def _aligned(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()
