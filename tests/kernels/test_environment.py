"""Sockets get names that are short enough, whatever folder TMPDIR names."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from graphmill.kernels import environment
from graphmill.kernels.environment import LONGEST_SOCKET, socket_folder
from graphmill.kernels.errors import InputError


@pytest.mark.parametrize("length", [1, 20, 59, 60, 61, 95, 107, 150, 240])
def test_a_socket_can_be_bound_in_the_folder(length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="")) / ("x" * length)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    name = f"{socket_folder(47)}/{os.getpid():046d}"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(name)
    os.unlink(name)
    assert name.startswith(str(folder)) == (len(str(folder)) + 47 <= LONGEST_SOCKET)


def test_without_a_short_folder_the_message_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "y" * 120)
    monkeypatch.setattr(environment, "SHORT_FOLDERS", ("/nowhere",))
    with pytest.raises(
        InputError, match=r"^TMPDIR = '/y+' has 121 bytes, and for a socket in it at most 60 are possible"
    ):
        socket_folder(47)
