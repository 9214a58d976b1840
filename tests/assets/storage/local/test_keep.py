from hypothesis import given
from hypothesis import strategies as st

from graphmill.assets.storage.local.keep import Node, closure, readers_first, reasons_to_keep

STAGES = ("graph", "samples", "model")


@st.composite
def lineages(draw):
    """Random acyclic lineages; inputs may be absent from the store, and artifacts may be damaged."""
    nodes = []
    for index in range(draw(st.integers(0, 12))):
        earlier = [node.address for node in nodes] + [("gone", "0")]
        node = Node(
            address=(draw(st.sampled_from(STAGES)), f"{index:02}"),
            built=str(draw(st.integers(0, 4))),
            inputs=tuple(draw(st.lists(st.sampled_from(earlier), max_size=3))),
            sound=draw(st.integers(0, 4)) > 0,
        )
        nodes.append(node)
    return draw(st.permutations(nodes))


def reachable(start, inputs):
    found = {start}
    for address in inputs.get(start, ()):
        found |= reachable(address, inputs)
    return found


@given(lineages(), st.integers(0, 4), st.data())
def test_what_is_kept_is_closed_and_no_more_than_that(nodes, keep, data):
    inputs = {node.address: node.inputs for node in nodes}
    leased = set(data.draw(st.lists(st.sampled_from([*inputs, ("model", "not built yet")]), max_size=3)))
    kept = reasons_to_keep(nodes, keep, leased)
    roots = set(leased)
    for stage in STAGES:
        sound = [node for node in nodes if node.sound and node.address[0] == stage]
        newest = sorted(sound, key=lambda node: (node.built, node.address))[-keep:] if keep else []
        roots |= {node.address for node in newest}
    needed = set().union(*(reachable(root, inputs) for root in roots)) if roots else set()
    assert set(kept) == needed & set(inputs)
    assert closure(roots, inputs) == needed


@given(lineages())
def test_readers_come_before_what_they_read(nodes):
    order = [node.address for node in readers_first(nodes)]
    assert sorted(order) == sorted(node.address for node in nodes)
    for node in nodes:
        assert all(order.index(node.address) < order.index(each) for each in set(node.inputs) & set(order))
