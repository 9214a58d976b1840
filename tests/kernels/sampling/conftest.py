"""Both maps of the fused sampler, for tests that say so: a small graph takes the direct one by itself."""

import pytest

from graphmill.kernels.sampling.sample import Sampler


@pytest.fixture(scope="module", params=["direct", "hashed"])
def each_map(request):
    """Runs the module once with each map."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "hashed":
            patch.setattr(Sampler, "MOST_DIRECT_NODES", -1)
        yield request.param
