"""Sharing: an artifact of a home becomes one of the object store, and of two that are different the stored one counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from graphmill.assets.storage.artifact import Artifact, read_artifact
from graphmill.assets.storage.manifest import content_digest
from graphmill.assets.storage.remote.fetch import fetch_artifact
from graphmill.assets.storage.remote.upload import upload_artifact


def share(root: Path, artifact: Artifact, replaces: bool) -> Artifact:
    """Returns an artifact that is the same in the home and in the object store; arguments and errors are those of `share_published`."""
    stands = upload_artifact(root, artifact, replaces=replaces)
    if content_digest(stands.manifest) == artifact.content:
        return artifact  # figures may differ: another version of the library draws other bytes
    # What is built from it names its content, which has to be that of all machines.
    fetch_artifact(root, stands.address, replaces=True)
    return replace(read_artifact(artifact.path), reused=True)
