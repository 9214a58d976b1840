"""Readers of DGL's files without the seconds of their imports."""

from collections.abc import Iterator, Mapping, Sequence
from subprocess import CompletedProcess

import pytest

from graphmill.assets.storage.names.home import ROOT
from tests import forks


@pytest.fixture(scope="module")
def quick_readers() -> Iterator[None]:
    """For tests of what is read from files of DGL: the process that reads one is a fork of a process that has imported DGL.

    Tests of sources/test_mistakes.py start it as pipelines do.
    """

    def run(command: Sequence[str], environment: Mapping[str, str]) -> CompletedProcess[str]:
        option, module, _, *arguments = command[1:]
        words = [option, module, str(forks.parent(forks.READERS)), *arguments]
        return forks.run(words, cwd=ROOT, env=environment, imports=forks.READERS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DGLBACKEND", "pytorch")  # DGL reads it when it is imported
        patch.setattr("graphmill.assets.sources.dgl.source.run_child", run)
        yield
