import http.client
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from graphmill.assets.storage.remote import objects as client
from graphmill.assets.storage.remote.fetch import fetch_artifact
from graphmill.assets.storage.remote.objects import Objects, creates_once, require_objects
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.storage.remote.test_copies import publish, version


@pytest.fixture(autouse=True)
def _few_retries(monkeypatch):
    monkeypatch.setattr(client, "RETRIES", 1)


@pytest.mark.usefixtures("objects")
def test_a_bucket_that_does_not_exist(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHMILL_STORE", "s3://other/place")
    with pytest.raises(InputError, match=r"s3://other/place cannot be used: its bucket does not exist") as error:
        Store(tmp_path).find("toy", version(0))
    assert "create the bucket" in error.value.remedy
    for ask in (lambda: require_objects().write("a", b""), lambda: require_objects().listed("a")):
        with pytest.raises(InputError, match="its bucket does not exist"):
            ask()


def test_a_server_that_does_not_answer(objects, tmp_path, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(InputError, match="its endpoint does not answer") as error:
            publish(Store(tmp_path))
    assert "AWS_ENDPOINT_URL" in error.value.remedy
    assert objects.listed("") == [] and len(Store(tmp_path).folders()) == 1, "the home has it; the next run shares it"


@pytest.mark.usefixtures("objects")
def test_http_that_was_not_allowed(tmp_path, monkeypatch):
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(InputError, match="its endpoint is http") as error:
        Store(tmp_path).find("toy", version(0))
    assert "AWS_ALLOW_HTTP" in error.value.remedy


class Flaky(BaseHTTPRequestHandler):
    """Passes requests on to a server, each after one answer that the server is busy."""

    endpoint = ""
    busy: ClassVar[set[str]] = set()

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if f"{self.command} {self.path}" not in self.busy:
            self.busy.add(f"{self.command} {self.path}")
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        server = http.client.HTTPConnection(self.endpoint.removeprefix("http://"))
        server.request(self.command, self.path, body, dict(self.headers))
        answer = server.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        for name in ("ETag", "Last-Modified", "Content-Length", "Content-Range", "Content-Type"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.end_headers()
        self.wfile.write(data)
        server.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

    def log_message(self, *given): ...


@pytest.mark.usefixtures("objects")
def test_requests_that_fail_for_a_moment_are_repeated(endpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(Flaky, "endpoint", endpoint)
    with ThreadingHTTPServer(("127.0.0.1", 0), Flaky) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        publish(Store(tmp_path / "a"))
        assert Store(tmp_path / "b").open("toy", version(0)).array("values")[1] == 1
        assert creates_once(require_objects()) and len(Flaky.busy) > 5
        server.shutdown()


def test_a_store_that_does_not_keep_conditions_is_found_out(objects, monkeypatch):
    assert creates_once(objects)
    monkeypatch.setattr(Objects, "create", lambda self, key, data: self.write(key, data) is None)
    assert not creates_once(objects) and objects.listed("clock") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Error performing PUT http://169.254.169.254/latest/api/token", "there are no credentials"),
        ("Server returned non-2xx status code: 403 Forbidden: <Code>AccessDenied</Code>", "it refuses the credentials"),
        (
            "Received redirect, this normally indicates an incorrectly configured region",
            "its bucket is in another region",
        ),
        ("something else\nDebug source:", "something else"),
    ],
)
def test_what_the_client_says_becomes_one_message(text, said):
    error = client.refused("s3://a/b", RuntimeError(text))
    assert error.problem == f"the object store s3://a/b cannot be used: {said}" and error.remedy


@pytest.mark.parametrize("url", ["memory:///", "https://example.org/x", "folder", "bogus://a/b"])
def test_urls_that_machines_cannot_share(url):
    with pytest.raises(InputError, match=r"GRAPHMILL_STORE = |cannot be used") as error:
        Objects(url)
    assert error.value.remedy


def test_a_full_disk_ends_a_fetch_with_one_message(stores, monkeypatch):
    one, other = stores
    publish(one)

    def full(*given):
        raise OSError(28, os.strerror(28))

    found = other.open("toy", version(0))
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(InputError, match=r"cannot write .*: the file system is full"):
        found.here()
    monkeypatch.undo()
    assert other.folders() == [] and not any((other.root / ".staging").glob("*"))


def test_an_artifact_that_was_collected_meanwhile_says_so(stores, objects):
    one, other = stores
    publish(one)
    found = other.open("toy", version(0))
    objects.remove(each.key for each in objects.listed(""))
    with pytest.raises(InputError, match=r"is neither in .* nor in s3://"):
        found.array("values")
    with pytest.raises(InputError, match="neither in"):
        fetch_artifact(require_objects(), other.root, ("toy", version(0)))
