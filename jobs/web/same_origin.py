"""Refuses requests of other web pages to the web UI.

Dagster's web server has no login, and listening on the loopback address keeps no web page out: a browser on this machine sends the requests
of any page. Without a guard,

- `<img src="http://127.0.0.1:3000/graphql?query=mutation{...}">` on any page launches, cancels or deletes runs, because the server carries
  out mutations that come by GET;
- a form or a script of any page sends mutations by POST, with a content type that needs no preflight request;
- a page whose own name is made to lead to 127.0.0.1 (DNS rebinding) reads everything, because the server answers to every `Host`;
- a web socket has no same-origin policy at all.

This guard is a small ASGI application around the server. It lets a request through when its `Host` is one of the server's names, when its
`Origin`, which browsers send with every request that may change something, is of such a host, and when it is not a mutation by GET.
Programs other than browsers send no `Origin`; they are let through, for a user who runs programs on this machine can read the files
directly.

It is not a login: other users of this machine reach the port. docs/ui.md has a proxy with passwords.

(Starlette's TrustedHostMiddleware compares names without their ports, cannot read IPv6 addresses, and does not look at origins.)
"""

import json
from collections.abc import Collection, Iterable
from urllib.parse import parse_qs, urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

SAFE = ("GET", "HEAD", "OPTIONS")
BAD_REQUEST, FORBIDDEN, MISDIRECTED, NOT_ALLOWED = 400, 403, 421, 405
POLICY_VIOLATION = 1008
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
DEFAULT_PORTS = {"http": 80, "https": 443}


def hosts_of(port: int, told: Iterable[str] = ()) -> frozenset[str]:
    """Returns the values of `Host` that a server answers to: its loopback names with its port, and the names of its proxy.

    Args:
        told: names under which a proxy serves it, with the proxy's port unless that is 80 or 443.
    """
    return frozenset([*(f"{name}:{port}" for name in LOCAL_NAMES), *(name.lower() for name in told)])


class SameOrigin:
    """The guard."""

    def __init__(self, application: ASGIApp, hosts: Collection[str]):
        self.application, self.hosts = application, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request through or answers it with the reason of the refusal."""
        if scope["type"] not in ("http", "websocket"):  # the start and the end of the server
            await self.application(scope, receive, send)
            return
        refused = self.refusal(scope)
        if refused is None:
            await self.application(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": refused[1][:120]})
        else:
            status, reason = refused
            answer = Response(json.dumps({"error": f"refused: {reason}"}), status, media_type="application/json")
            await answer(scope, receive, send)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Returns the HTTP status and the reason of a refusal, None for a request that is let through."""
        headers = _headers(scope)
        hosts, origins = headers.get("host", []), headers.get("origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            known = ", ".join(sorted(self.hosts))
            return MISDIRECTED, f"this server is {known}; for another name start it with: graphmill ui --served-as NAME"
        if any(not self._is_ours(origin) for origin in origins):
            return FORBIDDEN, "requests of other web pages are refused"
        site = headers.get("sec-fetch-site", ["none"])[0]
        if site in ("cross-site", "same-site") and not _is_navigation(scope, headers):
            return FORBIDDEN, "requests of other web pages are refused"
        if ".." in scope["path"].replace("\\", "/").split("/"):
            return BAD_REQUEST, "a path leads upwards"
        if scope["type"] == "http" and scope["method"] in SAFE and _may_mutate(scope):
            return NOT_ALLOWED, "changes are sent by POST"
        return None

    def _is_ours(self, origin: str) -> bool:
        """Tells whether an origin is one of the server's hosts; "null" and text that is not a URL are foreign."""
        try:
            parts = urlsplit(origin.lower())
            port = parts.port
        except ValueError:
            return False
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
            return False
        name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        names = {f"{name}:{port or DEFAULT_PORTS[parts.scheme]}"}
        if port in (None, DEFAULT_PORTS[parts.scheme]):
            names.add(name)
        return bool(names & self.hosts)


def _is_navigation(scope: Scope, headers: dict[str, list[str]]) -> bool:
    """Tells whether a request follows a link to a page of the UI: it changes nothing and shows the linking page nothing."""
    destination, mode = headers.get("sec-fetch-dest", [""])[0], headers.get("sec-fetch-mode", [""])[0]
    top = destination == "document" and mode == "navigate"
    return top and scope["type"] == "http" and scope["method"] == "GET" and not _is_graphql(scope)


def _is_graphql(scope: Scope) -> bool:
    return scope["path"].rstrip("/").endswith("/graphql")


def _may_mutate(scope: Scope) -> bool:
    """Tells whether a request sends GraphQL anything but queries; a text that cannot be parsed counts as well."""
    if not _is_graphql(scope):
        return False
    from graphql import GraphQLError, OperationDefinitionNode, OperationType, parse

    texts = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True).get("query", [])
    for text in texts:
        try:
            document = parse(text)
        except (GraphQLError, RecursionError):
            return True
        operations = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
        if any(node.operation != OperationType.QUERY for node in operations):
            return True
    return False


def _headers(scope: Scope) -> dict[str, list[str]]:
    """Returns name in lower case -> values; the server hands on the names of a web socket's headers as they came."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").strip())
    return found
