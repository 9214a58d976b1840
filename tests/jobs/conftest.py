"""What keeps the modules of this folder apart."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A launch sets the home for its processes; the next module must not see it. What asks for no home gets one of this module."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp("default")))
        yield
