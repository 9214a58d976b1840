"""Small file systems."""

import shutil
import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts a file system of so many bytes."""
    mounted = []

    def mount(num_bytes):
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(folder)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting a tmpfs is not permitted here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)
