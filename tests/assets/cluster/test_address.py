"""The texts that name a cluster."""

import pytest

from graphmill.assets.cluster.address import address_problem, parse_address
from graphmill.kernels.errors import InputError


@pytest.mark.parametrize(
    ("text", "ray", "nodes", "client"),
    [
        ("auto", "auto", 0, False),
        ("ray", "auto", 0, False),
        ("local:3", "local:3", 3, False),
        ("head.lan:6379", "head.lan:6379", 0, False),
        ("ray://10.0.0.1:10001", "ray://10.0.0.1:10001", 0, True),
        ("[fe80::1]:6379", "[fe80::1]:6379", 0, False),
    ],
)
def test_an_address_is_understood(text: str, ray: str, nodes: int, client: bool) -> None:
    found = parse_address(text)
    assert (found.text, found.num_local, found.is_client) == (ray, nodes, client)


@pytest.mark.parametrize(
    "text", ["", "head", "local:", "local:0", "local:300", "http://head:1", "head:0", "head:99999", "ray://"]
)
def test_any_other_text_is_refused(text: str) -> None:
    assert address_problem(text)
    with pytest.raises(InputError, match="write auto"):
        parse_address(text)
