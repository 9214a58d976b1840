"""Telling of failures: what a command and a webhook may do wrong is a sentence, and none of them has the secret address in it."""

import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from graphmill.jobs.operations.failures import post, run_command

VALUES = {"pipeline": "mine", "job": "mine__all", "run": "0123456789", "text": "it failed: \u00e4"}


@pytest.mark.parametrize(
    "address", ["http://localhost:port/secret", "http://127.0.0.1:1/secret tok", "http://[::1/secret", "http://127.0.0.1:1/secret"]
)  # fmt: skip
def test_an_address_that_does_not_work_is_never_shown(address):
    told = post(address, VALUES)
    assert told.startswith("the webhook could not be told: ") and "secret" not in told


def test_an_answer_that_is_no_http_is_a_sentence():
    class Rude(BaseHTTPRequestHandler):
        def do_POST(self):
            self.wfile.write(b"what?\r\n\r\n")

        def log_message(self, *given):
            pass

    with HTTPServer(("127.0.0.1", 0), Rude) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        told = post(f"http://127.0.0.1:{server.server_port}/secret", VALUES)
    assert told.startswith("the webhook could not be told: ") and "secret" not in told


def test_a_command_may_print_any_bytes():
    noisy = [sys.executable, "-c", "import sys; sys.stdout.buffer.write(b'\\xff'); sys.stderr.buffer.write(b'\\xfe')"]
    assert run_command(noisy, VALUES) == ""
    assert "ended with 3" in run_command([sys.executable, "-c", "import sys; sys.exit(3)"], VALUES)
    assert "could not be run" in run_command(["/not/there"], VALUES)
    assert "could not be run" in run_command(["a\0b"], VALUES)
