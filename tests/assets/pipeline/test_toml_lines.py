import tomllib

from hypothesis import given
from hypothesis import strategies as st

from graphmill.assets.pipeline.toml_text import key_lines, line_of

EXAMPLE = '''\
# a comment with [brackets] and "quotes
name = "x" # trailing = comment

[graph] # [not a table]
"quoted key" = 'literal'
a.b . c = 1
text = """
[fake]
x = "\\"""
"""
raw = \'\'\'
[[fake]]\'\'\'
list = [1, # [
  "two]",
  [3, 4],
  { x = 1, y = ["#"] },
]
when = 1979-05-27 07:32:00
[[train]]
lr = 1e-3
[train.fresh]
p_grad = 0.5
[[train]]
lr = 2
  [[train.deep]]
  k = 1
  [[train.deep]]
  k = 2
'''


def test_every_key_of_an_example():
    lines = key_lines(EXAMPLE)
    expected = {
        ("name",): 2,
        ("graph",): 4,
        ("graph", "quoted key"): 5,
        ("graph", "a"): 6,
        ("graph", "a", "b", "c"): 6,
        ("graph", "text"): 7,
        ("graph", "raw"): 11,
        ("graph", "list"): 13,
        ("graph", "list", 0): 13,
        ("graph", "list", 1): 14,
        ("graph", "list", 2, 1): 15,
        ("graph", "list", 3, "y"): 16,
        ("graph", "when"): 18,
        ("train",): 19,
        ("train", 0): 19,
        ("train", 0, "fresh", "p_grad"): 22,
        ("train", 1): 23,
        ("train", 1, "lr"): 24,
        ("train", 1, "deep", 0, "k"): 26,
        ("train", 1, "deep", 1): 27,
        ("train", 1, "deep", 1, "k"): 28,
    }
    assert {path: lines[path] for path in expected} == expected
    assert set(lines) >= set(paths_of(tomllib.loads(EXAMPLE)))
    assert not any("fake" in path for path in lines)


def test_absent_keys_stand_where_their_table_stands():
    lines = key_lines(EXAMPLE)
    assert line_of(lines, ("train", 1, "absent")) == 23
    assert line_of(lines, ("absent", 3)) == 1
    assert line_of({}, ()) == 1


def paths_of(value, path=()):
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield from paths_of(item, (*path, key))


def spell(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{spell(key)} = {spell(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(spell, value)) + "\n]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = "".join(c if c not in '"\\\n\r' and c >= " " != "\x7f" else f"\\u{ord(c):04x}" for c in value)
        return f'"{escaped}"'
    return str(value)


TEXTS = st.text(alphabet="ab\"#[]{}=,\\\n'. é", max_size=6)
VALUES = st.recursive(
    st.integers() | st.booleans() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(tables=st.dictionaries(TEXTS, st.dictionaries(TEXTS, VALUES, max_size=4), max_size=4))
def test_every_key_of_any_text_has_its_line(tables):
    text, expected = "", {}
    for name, table in tables.items():
        expected[name,] = text.count("\n") + 1
        text += f"[{spell(name)}]\n"
        for key, value in table.items():
            expected[name, key] = text.count("\n") + 1
            text += f"  {spell(key)} = {spell(value)} # comment\n\n"
    assert tomllib.loads(text) == tables
    lines = key_lines(text)
    assert set(lines) == set(paths_of(tables))
    assert {path: lines[path] for path in expected} == expected
