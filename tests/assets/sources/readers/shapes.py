"""Graphs in shapes that are no lists of edges, though each line could be read as one, and the edges that they mean; from a number."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Edges = set[tuple[str, str]]


@dataclass
class Shape:
    """A drawn text.

    Attributes:
        name: name of its file.
        text: its content.
        edges: the edges that it means, by the ids that the remedy's list of edges has.
        said: what the refusal has to say.
    """

    name: str
    text: str
    edges: Edges
    said: str


def graph(draw: random.Random, first: int = 0) -> tuple[int, list[tuple[int, int]]]:
    """Returns (number of nodes, edges in both directions) of a graph in which each node has a neighbour and degrees differ."""
    count = draw.randrange(6, 15)
    pairs = {(node, (node + 1) % count) for node in range(count)} | {(0, node) for node in range(2, 5)}
    pairs |= {(draw.randrange(count), draw.randrange(count)) for _ in range(count)}
    both = {(a + first, b + first) for a, b in pairs if a != b}
    return count, sorted(both | {(b, a) for a, b in both})


def neighbours(draw: random.Random) -> Shape:
    """An adjacency list, with one of many separators."""
    edges = graph(draw, draw.choice((0, 1)))[1]
    node, others = draw.choice(
        ((" ", " "), ("\t", "\t"), (",", ","), (": ", " "), ("\t", ","), ("  ", "  "), (";", ";"))
    )
    lines = [f"{a}{node}{others.join(str(b) for x, b in edges if x == a)}" for a in sorted({a for a, _ in edges})]
    above = draw.choice(("", "# made by a program\n# of graphs\n"))
    name = draw.choice(("g.txt", "g.edges", "g.dat"))
    return Shape(name, above + "\n".join(lines) + "\n", _texts(edges), "looks like an adjacency list")


def metis(draw: random.Random) -> Shape:
    """A graph of METIS, with weights or without."""
    count, edges = graph(draw, 1)
    form = draw.choice(("", " 1", " 10", " 11", " 001"))
    lines = [f"{count} {len(edges) // 2}{form}"]
    for node in range(1, count + 1):
        weight = " 7" if form.strip().endswith("1") else ""
        fields = [f"{b}{weight}" for a, b in edges if a == node]
        lines.append(" ".join([*(["5"] if form.strip() in ("10", "11") else []), *fields]))
    above = draw.choice(("", "% made by a program\n"))
    return Shape("g.txt", above + "\n".join(lines) + "\n", _texts(edges), "looks like a graph of METIS")


def counts(draw: random.Random) -> Shape:
    """A list of edges below a line of counts: nodes and edges, more numbers, or nodes alone."""
    count, edges = graph(draw, draw.choice((0, 1)))
    n, m = count, len(edges)
    first = draw.choice((f"{n} {m}", f"{m} {n}", f"{n} {n} {m}", f"{n} {m} 0 1", f"{n}", f"{n}\n{m}", f"{n} {2 * m}"))
    weights = "\n" not in first and len(first.split()) == 3
    separator = draw.choice((" ", ",", "\t"))
    lines = [separator.join([str(a), str(b), *(["1"] if weights else [])]) for a, b in edges]
    text = f"{first.replace(' ', separator)}\n" + "\n".join(lines) + "\n"
    above = draw.choice(("", "% made by a program\n"))
    return Shape(draw.choice(("g.txt", "g.csv")), above + text, _texts(edges), "counts of nodes and edges")


def matrix(draw: random.Random) -> Shape:
    """An adjacency matrix: with or without names of rows and columns."""
    count, edges = graph(draw)
    weight = draw.choice(("1", "1", "0.5", "7"))
    zero = draw.choice(("0", "0.0", "0.000e+00")) if weight != "7" else "0"
    rows = [[weight if (a, b) in {*edges} else zero for b in range(count)] for a in range(count)]
    separator = draw.choice((",", ";", "\t", " "))
    form = draw.choice(("bare", "names", "numbers", "index", "header"))
    names = [f"v{a}" for a in range(count)] if form in ("names", "header") else [str(a) for a in range(count)]
    if form in ("names", "numbers", "index"):
        rows = [[names[a], *row] for a, row in enumerate(rows)]
    lines = [separator.join(row) for row in rows]
    if form in ("names", "numbers", "header"):
        corner = [] if form == "header" else ["name" if separator == " " else ""]
        lines = [separator.join([*corner, *names]), *lines]
    name = "g.txt" if separator == " " else "g.csv"
    return Shape(name, "\n".join(lines) + "\n", _texts(edges), "looks like an adjacency matrix")


SHAPES: tuple[Callable[[random.Random], Shape], ...] = (neighbours, metis, counts, matrix)


def edges_of_table(draw: random.Random) -> tuple[str, str, int]:
    """Returns (name, text, number of rows) of an ordinary list of edges, in which columns behind the ends have any numbers."""
    count, rows, columns = draw.randrange(2, 60), draw.randrange(1, 60), draw.randrange(0, 4)
    separator = draw.choice((",", " ", "\t", ";"))
    kinds = [
        draw.choice(
            (lambda: f"{draw.random():.3f}", lambda: str(draw.randrange(5)), lambda: str(draw.randrange(10**9)))
        )
        for _ in range(columns)
    ]
    lines = [
        separator.join([str(draw.randrange(count)), str(draw.randrange(count)), *(kind() for kind in kinds)])
        for _ in range(rows)
    ]
    if draw.random() < 0.5:
        lines = [separator.join(["src", "dst", *(f"w{place}" for place in range(columns))]), *lines]
    return "g.txt", "\n".join(lines) + "\n", rows


def _texts(edges: list[tuple[int, int]]) -> Edges:
    return {(str(a), str(b)) for a, b in edges}
