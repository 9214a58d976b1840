"""A table of text that can be pasted elsewhere: into a Markdown file, or into a paper as LaTeX."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphmill.assets.building.page import markdown_text
from graphmill.kernels.errors import IN_A_LINE

LATEX_SPELLING = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "…": r"\ldots{}",
}
"""Character -> its spelling in the text of LaTeX."""

HYPHENS = re.compile("--+")
"""Hyphens that LaTeX would print as one dash."""


@dataclass(frozen=True, kw_only=True)
class PlainTable:
    """Headings and rows of text.

    Attributes:
        left: headings of the columns that are aligned to the left; the others hold numbers.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]] = field(repr=False)
    left: frozenset[str] = frozenset()

    def markdown(self) -> str:
        """Returns the table in the Markdown of GitHub and pandoc, every cell as it stands."""
        rule = [":---" if name in self.left else "---:" for name in self.columns]
        lines = [_markdown_row(self.columns), f"| {' | '.join(rule)} |", *map(_markdown_row, self.rows)]
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        r"""Returns the table as a `tabular` with the rules of the package booktabs, every cell as it stands."""
        kinds = "".join("l" if name in self.left else "r" for name in self.columns)
        lines = [
            "% needs \\usepackage{booktabs}",
            f"\\begin{{tabular}}{{{kinds}}}",
            "\\toprule",
            _latex_row(self.columns),
            "\\midrule",
            *map(_latex_row, self.rows),
            "\\bottomrule",
            "\\end{tabular}",
        ]
        return "\n".join(lines) + "\n"


def one_line(text: str) -> str:
    """Returns a text with each run of blanks and ends of lines as one blank."""
    return " ".join(text.split())


def _markdown_row(cells: Sequence[str]) -> str:
    kept = [markdown_text(one_line(cell)) for cell in cells]
    return f"| {' | '.join(kept)} |"


def _latex_row(cells: Sequence[str]) -> str:
    return f"{' & '.join(map(latex_text, cells))} \\\\"


def latex_text(text: str) -> str:
    """Returns a text that LaTeX prints as it stands, on one line."""
    spelled = "".join(LATEX_SPELLING.get(letter, letter) for letter in one_line(text).translate(IN_A_LINE))
    return HYPHENS.sub(lambda found: "{-}" * len(found[0]), spelled)
