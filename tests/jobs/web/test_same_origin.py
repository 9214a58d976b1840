"""What the guard before the web server lets through, request by request."""

import asyncio
from urllib.parse import quote

import pytest

from graphmill.jobs.web.same_origin import SameOrigin, hosts_of

HOSTS = hosts_of(3000, ["graph.example.org", "Other.example.org:8443"])
MUTATION = "/graphql?query=" + quote("mutation { terminateRun(runId: 1) { __typename } }")


def answer(method="GET", target="/", kind="http", **headers):
    """Returns the status with which a request is refused, 200 where it reached the application."""
    path, _, query = target.partition("?")
    given = [(b"host", b"127.0.0.1:3000")] if "host" not in headers else []
    for name, value in headers.items():
        given += [
            (name.replace("_", "-").encode(), each.encode()) for each in ([value] if isinstance(value, str) else value)
        ]
    scope = {"type": kind, "method": method, "path": path, "query_string": query.encode(), "headers": given}
    sent = []

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})

    async def send(message):
        sent.append(message)

    async def receive():
        return {}

    asyncio.run(SameOrigin(application, HOSTS)(scope, receive, send))
    return sent[0].get("status", sent[0].get("code"))


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"host": "localhost:3000"},
        {"host": "[::1]:3000"},
        {"host": "LOCALHOST:3000"},
        {"host": "graph.example.org"},
        {"host": "other.example.org:8443", "origin": "https://other.example.org:8443"},
        {"host": "graph.example.org", "origin": "https://graph.example.org"},
        {"host": "graph.example.org", "origin": "https://graph.example.org:443"},
        {"method": "POST", "target": "/graphql"},
        {"method": "POST", "target": "/graphql", "origin": "http://127.0.0.1:3000"},
        {"method": "POST", "target": "/graphql", "origin": "http://localhost:3000", "sec_fetch_site": "same-origin"},
        {"target": "/graphql?query=" + quote("{ version }")},
        {"target": "/graphql?query=" + quote("query Mutation { version }")},
        {
            "target": "/assets",
            "sec_fetch_site": "cross-site",
            "sec_fetch_mode": "navigate",
            "sec_fetch_dest": "document",
        },
        {"kind": "websocket", "target": "/graphql", "origin": "http://127.0.0.1:3000"},
    ],
    ids=str,
)
def test_requests_of_the_ui_itself_pass(request_):
    assert answer(**request_) == 200


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        (421, {"host": "evil.example.org"}),
        (421, {"host": "127.0.0.1"}),
        (421, {"host": "127.0.0.1:3001"}),
        (421, {"host": ["127.0.0.1:3000", "evil.example.org"]}),
        (421, {"host": []}),
        (403, {"method": "POST", "target": "/graphql", "origin": "http://evil.example.org"}),
        (403, {"method": "POST", "target": "/graphql", "origin": "http://127.0.0.1:3001"}),
        (403, {"method": "POST", "target": "/graphql", "origin": "null"}),
        (403, {"method": "POST", "target": "/graphql", "origin": ["http://127.0.0.1:3000", "http://evil.example.org"]}),
        (403, {"method": "POST", "target": "/graphql", "origin": "http://127.0.0.1:3000.evil.example.org"}),
        (403, {"method": "POST", "target": "/graphql", "origin": "http://graph.example.org:8080"}),
        (403, {"method": "POST", "target": "/graphql", "origin": "http://["}),
        (403, {"method": "POST", "target": "/graphql", "origin": "ftp://graph.example.org"}),
        (403, {"method": "POST", "target": "/report_asset_materialization/a", "origin": "http://evil.example.org"}),
        (
            403,
            {
                "target": "/graphql?query=" + quote("{ version }"),
                "sec_fetch_site": "cross-site",
                "sec_fetch_dest": "image",
            },
        ),
        (403, {"target": "/logs/x", "sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"}),
        (
            403,
            {"target": "/", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"},
        ),
        (
            403,
            {
                "target": "/graphql?query=" + quote("{ version }"),
                "sec_fetch_site": "cross-site",
                "sec_fetch_mode": "navigate",
                "sec_fetch_dest": "document",
            },
        ),
        (405, {"target": MUTATION}),
        (405, {"method": "HEAD", "target": MUTATION}),
        (405, {"target": "/prefix" + MUTATION}),
        (405, {"target": "/graphql/?query=" + quote("mutation{a}")}),
        (405, {"target": "/graphql?query=" + quote("query A { version } mutation B { a }") + "&operationName=B"}),
        (405, {"target": "/graphql?query=" + quote("{ version }") + "&query=" + quote("mutation{a}")}),
        (405, {"target": "/graphql?query=" + quote("subscription { a }")}),
        (405, {"target": "/graphql?query=" + quote("# {\nmutation { a }")}),
        (405, {"target": "/graphql?query=" + quote("mutation {")}),
        (405, {"target": "/graphql?query=" + quote("{a" * 5000)}),
        (1008, {"kind": "websocket", "target": "/graphql", "origin": "http://evil.example.org"}),
        (1008, {"kind": "websocket", "target": "/graphql", "host": "evil.example.org"}),
    ],
    ids=lambda value: str(value)[:90],
)
def test_foreign_requests_are_refused(status, request_):
    assert answer(**request_) == status


def test_the_start_of_the_server_passes():
    assert answer(kind="lifespan") == 200


@pytest.mark.parametrize("target", ["/logs/..", "/logs/../../etc/passwd", "/..\\x", "/logs/a\\.."])
def test_paths_that_lead_upwards_are_refused(target):
    """The server decodes `%2e%2e` before it asks; Dagster answers to it with an internal error."""
    assert answer(target=target) == 400


@pytest.mark.parametrize("target", ["/logs/a..b", "/...", "/logs/..."])
def test_other_dots_are_let_through(target):
    assert answer(target=target) == 200
