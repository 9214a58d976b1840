"""The site for nginx of docs/ui.md, word for word but for names and ports, before the guarded web server."""

import base64
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from tests.jobs.runs.processes import unused_port
from tests.jobs.web.test_guarded_ui import MUTATION, limits, start

pytestmark = pytest.mark.first
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
OPENSSL = shutil.which("openssl")
NAME = "graph.example.org"
PAGE = (Path(__file__).parents[3] / "docs" / "ui.md").read_text()
AROUND = """
{user}
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
{site}
}}
"""


def site(folder: Path, port: int, behind: int) -> str:
    """Returns the site of the page with this folder and these ports in the places of the page's."""
    (text,) = re.findall(r"```nginx\n(.*?)```", PAGE, re.DOTALL)
    for old, new in (
        ("443 ssl", f"127.0.0.1:{port} ssl"),
        ("/etc/nginx", str(folder)),
        ("127.0.0.1:3000", f"127.0.0.1:{behind}"),
    ):
        assert old in text, f"the page's site has no {old} any more"
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    if NGINX is None or OPENSSL is None:
        pytest.skip("no nginx or no openssl on this machine: the proxy of docs/ui.md was not run")
    folder = tmp_path_factory.mktemp("nginx")
    behind = start(folder / "ui", ["-m", "graphmill.jobs.web", "webserver"], [NAME])
    port = unused_port()
    # As root it would hand the work to a user who may not read the folders of a test.
    user = "user root;" if os.geteuid() == 0 else ""
    try:
        key, certificate = folder / "graphmill.key", folder / "graphmill.crt"
        made = [
            OPENSSL,
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            f"/CN={NAME}",
            "-addext",
            f"subjectAltName=DNS:{NAME}",
        ]
        subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
        hashed = subprocess.run([OPENSSL, "passwd", "-apr1", "secret"], check=True, capture_output=True, text=True)
        (folder / "graphmill.htpasswd").write_text(f"ann:{hashed.stdout}")
        (folder / "nginx.conf").write_text(
            AROUND.format(user=user, folder=folder, site=site(folder, port, behind.port))
        )
        with open(folder / "log", "w") as log:
            nginx = subprocess.Popen(
                [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")], stdout=log, stderr=log
            )
        try:
            wait_for_port(port, nginx, folder / "log")
            yield SimpleNamespace(port=port, certificate=certificate, home=behind.home, behind=behind.port)
        finally:
            nginx.terminate()
            nginx.wait(120)
    finally:
        behind.process.terminate()
        behind.process.wait(60)


def wait_for_port(port, process, log):
    limit = time.monotonic() + 120
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None and time.monotonic() < limit, log.read_text()
            time.sleep(0.1)


def asked(proxy, method="GET", target="/server_info", host=NAME, password="secret", body=b"", **headers):
    """Sends one request over TLS and returns the head of the answer and its body."""
    sent = {"Host": host, "Connection": "close", "Content-Length": str(len(body))}
    if password:
        sent["Authorization"] = "Basic " + base64.b64encode(f"ann:{password}".encode()).decode()
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    context = ssl.create_default_context(cafile=str(proxy.certificate))
    with (
        socket.create_connection(("127.0.0.1", proxy.port), 60) as plain,
        context.wrap_socket(plain, server_hostname=NAME) as tls,
    ):
        tls.sendall(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        answer = b""
        while piece := tls.recv(65536):
            answer += piece
            if "Upgrade" in headers and b"\r\n\r\n" in answer:  # such a connection stays open
                break
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), rest.decode(errors="replace")


def test_a_password_is_asked_for(proxy):
    assert asked(proxy, password="")[0] == 401
    assert asked(proxy, password="wrong")[0] == 401
    status, text = asked(proxy)
    assert status == 200 and "dagster_webserver_version" in text


def test_pages_of_others_and_other_names_are_refused(proxy):
    body = ('{"query": "' + (MUTATION % "through").replace('"', '\\"') + '"}').encode()
    post = {"method": "POST", "target": "/graphql", "body": body, "Content_Type": "application/json"}
    assert asked(proxy, **post, Origin="https://evil.example.org")[0] == 403
    assert asked(proxy, **post, Origin="null")[0] == 403
    assert asked(proxy, host="evil.example.org")[0] == 421
    assert asked(proxy, host="127.0.0.1")[0] == 421
    assert asked(proxy, target="/graphql?query=" + quote(MUTATION % "through"))[0] == 405
    assert limits(proxy.home) & {"through"} == set()
    # The page itself does what it wants.
    status, text = asked(proxy, **post, Origin=f"https://{NAME}")
    assert status == 200 and '"setConcurrencyLimit":true' in text.replace(" ", "")
    assert "through" in limits(proxy.home)


def test_web_sockets_pass(proxy):
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Protocol": "graphql-ws",
    }
    assert asked(proxy, target="/graphql", Origin=f"https://{NAME}", **upgrade)[0] == 101
    assert asked(proxy, target="/graphql", Origin="https://evil.example.org", **upgrade)[0] == 403
