"""The real web server, bare and guarded, and a real browser that shows a page of somebody else."""

import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import quote

import dagster as dg
import pytest

from graphmill.jobs.commands.machine.ui import server_environment
from graphmill.jobs.runs.instance import init_home
from tests.jobs.browser import Page, find_browser
from tests.jobs.runs.processes import unused_port

pytestmark = pytest.mark.first
BROWSER = find_browser()
MUTATION = 'mutation{setConcurrencyLimit(concurrencyKey:"%s",limit:7)}'
WAYS = ("image", "text", "form", "json", "socket", "frame")
PAGE = """<!doctype html><title>evil</title><body><script>
const target = "TARGET", mutation = (way) => MUTATION.replace("%s", way);
new Image().src = target + "/graphql?query=" + encodeURIComponent(mutation("image"));
fetch(target + "/graphql?query=" + encodeURIComponent(mutation("text")), {method: "POST", mode: "no-cors", body: "x"}).catch(() => 0);
fetch(target + "/graphql", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({query: mutation("json")})})
  .catch(() => 0);
const into = document.createElement("iframe"); into.name = "into"; document.body.append(into);
const form = document.createElement("form"); form.method = "POST"; form.target = "into";
form.action = target + "/graphql?query=" + encodeURIComponent(mutation("form")); document.body.append(form); form.submit();
const frame = document.createElement("iframe"); document.body.append(frame);
frame.src = target + "/graphql?query=" + encodeURIComponent(mutation("frame"));
const socket = new WebSocket(target.replace("http", "ws") + "/graphql", "graphql-ws");
socket.onopen = () => { socket.send(JSON.stringify({type: "connection_init"}));
  socket.send(JSON.stringify({id: "1", type: "start", payload: {query: mutation("socket")}}));
  setTimeout(() => document.title = "socket open", 1500); };
setTimeout(() => document.body.append("all was tried"), 4000);
</script>"""


def start(folder, program, names=()):
    """Starts a web server alone, without pipelines; returns its port, its home and its process."""
    home, port = folder / "home", unused_port()
    folder.mkdir()
    init_home(home)
    command = [sys.executable, *program, "--empty-workspace", "-h", "127.0.0.1", "-p", str(port)]
    with open(folder / "log", "w") as log:
        env = os.environ | server_environment(home, port, names)
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=folder)
    limit = time.monotonic() + 120
    while True:
        try:
            if asked(port, "GET", "/server_info")[0]:
                return SimpleNamespace(port=port, home=home, process=process)
        except OSError:
            assert process.poll() is None and time.monotonic() < limit, (folder / "log").read_text()
            time.sleep(0.3)


def asked(port, method, target, body=None, **headers):
    """Sends one request and returns status and text of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
    reply = connection.getresponse()
    return reply.status, reply.read().decode(errors="replace")


def limits(home):
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return {pool.name for pool in instance.event_log_storage.get_pool_limits()}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web")
    guarded = start(folder / "guarded", ["-m", "graphmill.jobs.web", "webserver"], ["graph.example.org"])
    try:
        bare = start(folder / "bare", ["-m", "dagster_webserver"])
        try:
            yield SimpleNamespace(bare=bare, guarded=guarded)
        finally:
            bare.process.terminate()
            bare.process.wait(60)
    finally:
        guarded.process.terminate()
        guarded.process.wait(60)


def test_the_bare_server_takes_what_the_guarded_one_refuses(servers):
    mutation = "/graphql?query=" + quote(MUTATION % "by-get")
    foreign = {"Origin": "http://evil.example.org", "Content_Type": "application/json"}
    body = json.dumps({"query": MUTATION % "foreign"})
    assert asked(servers.bare.port, "GET", mutation, Host="evil.example.org")[0] == 200
    assert asked(servers.bare.port, "POST", "/graphql", body, **foreign)[0] == 200
    assert {"by-get", "foreign"} <= limits(servers.bare.home)

    port = servers.guarded.port
    assert asked(port, "GET", mutation)[0] == 405
    status, text = asked(port, "GET", "/graphql?query={version}", Host="evil.example.org")
    assert status == 421 and "--served-as" in text
    assert asked(port, "POST", "/graphql", body, **foreign)[0] == 403
    assert not limits(servers.guarded.home) & {"by-get", "foreign"}


def test_the_guarded_server_does_its_work(servers):
    port = servers.guarded.port
    assert asked(port, "GET", "/")[0] == 200
    assert "graph.example.org" not in asked(port, "GET", "/", Host="graph.example.org")[1]
    assert asked(port, "GET", "/", Host="graph.example.org")[0] == 200
    status, text = asked(port, "GET", "/graphql?query=" + quote("{ version }"))
    assert status == 200 and "1.13" in text
    body = json.dumps({"query": MUTATION % "own"})
    own = {"Origin": f"http://localhost:{port}", "Content_Type": "application/json"}
    assert '"setConcurrencyLimit":true' in asked(port, "POST", "/graphql", body, **own)[1].replace(" ", "")
    assert "own" in limits(servers.guarded.home)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: no page of another origin was shown")
def test_a_page_of_another_origin_changes_nothing(servers, tmp_path):
    """The same page, against the bare server, where it changes things, and against the guarded one."""
    assert attacked(servers.bare, tmp_path / "bare") >= {"image", "text", "form"}
    assert attacked(servers.guarded, tmp_path / "guarded") == set()


def attacked(target, folder):
    """Shows the page in a browser, and returns the ways in which it changed something."""

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self):
            text = PAGE.replace("TARGET", f"http://127.0.0.1:{target.port}").replace("MUTATION", json.dumps(MUTATION))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    before = limits(target.home)
    folder.mkdir()
    evil = ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    page = Page(str(BROWSER), folder)
    try:
        page.visit(f"http://127.0.0.1:{evil.server_port}/", ["all was tried"], picture=folder / "evil.png")
    finally:
        page.close()
        evil.shutdown()
        shutil.rmtree(page.profile, ignore_errors=True)
    return (limits(target.home) - before) & set(WAYS)
