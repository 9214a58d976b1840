"""A table that is pasted elsewhere has the cells that it had here."""

from __future__ import annotations

import re

from graphmill.jobs.figures.plain_table import PlainTable, latex_text

CELLS = ("a|b", "x_y*z`", "<b>&amp;", "50 %", "12.3 ± 0.4", "C:\\dir\n{#1} ~^$", '"q"')
TABLE = PlainTable(
    title="t", columns=["name", *(f"c_{n}" for n in range(6))], rows=[CELLS, ["-"] * 7], left=frozenset({"name"})
)


def test_markdown_has_the_same_cells() -> None:
    head, rule, *rows = TABLE.markdown().splitlines()
    assert rule == "| :--- |" + " ---: |" * 6
    read = [
        [re.sub(r"\\(.)", r"\1", cell).strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in (head, *rows)
    ]
    assert read == [list(TABLE.columns), [" ".join(cell.split()) for cell in CELLS], ["-"] * 7]
    # Nothing is left that Markdown would take for an emphasis, a tag, an entity or code.
    assert not re.search(r"(?<!\\)[*_`<&]", "".join(rows))


def test_latex_escapes_what_would_not_compile() -> None:
    text = TABLE.latex()
    assert text.splitlines()[1:4] == [
        r"\begin{tabular}{lrrrrrr}",
        r"\toprule",
        r"name & c\_0 & c\_1 & c\_2 & c\_3 & c\_4 & c\_5 \\",
    ]
    row = text.splitlines()[5]
    assert row == (
        r"a\textbar{}b & x\_y*z` & \textless{}b\textgreater{}\&amp; & 50 \% & 12.3 $\pm$ 0.4 & "
        r"C:\textbackslash{}dir \{\#1\} \textasciitilde{}\textasciicircum{}\$ & ''q'' \\"
    )
    assert text.endswith("\\bottomrule\n\\end{tabular}\n") and "booktabs" in text.splitlines()[0]


def test_latex_makes_no_dash_of_hyphens() -> None:
    assert latex_text("a-b--c---d_") == r"a-b{-}{-}c{-}{-}{-}d\_"
