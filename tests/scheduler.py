"""How test files are dealt to processes: a plugin of pytest."""

from __future__ import annotations

from typing import Any

import pytest

SHARED = "tests/jobs/served/"
"""A folder whose files share one server, so one process takes all of them."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deals whole files to processes, as `--dist loadfile` does, and the files that share a server together."""
    from xdist.scheduler import LoadFileScheduling

    class LoadServedTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return SHARED if nodeid.startswith(SHARED) else super()._split_scope(nodeid)

        def remove_node(self, node: Any) -> str | None:
            # What a crashed process has done would be dealt again, as files without tests. A process that is dealt one ends no test by
            # it, so it is never dealt another: the whole run waits for ever (pytest-xdist 3.8).
            work = self.assigned_work[node]
            for file in [file for file, tests in work.items() if all(tests.values())]:
                del work[file]
            return super().remove_node(node)

    return LoadServedTogether(config, log) if config.option.dist == "loadfile" else None
