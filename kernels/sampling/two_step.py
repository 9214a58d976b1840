"""Neighbour sampling in two steps, as FastSample (section 3.2) describes the practice it replaces; kept as an ablation.

Step 1 writes the sampled edges of a layer as a list of (source, destination) in global ids. Step 2 reads the list again, renames
both sides and sorts the edges by destination into compressed columns. Row lengths that step 1 knew are counted anew, and every
edge is written and read two times more than in `kernels.sampling.sample`. Choosing, map and draws are those of the fused sampler, so the
blocks are equal to the byte and the difference in time is that of fusing alone. It is the middle bar of FastSample's Fig. 6.

Cost beside the fused sampler: 2 ids and 8 bytes per edge, written and read; one more random read of the map per edge. Do not train
with it.
"""

from __future__ import annotations

from kernels.sampling.sample import Sampler


class TwoStepSampler(Sampler):
    """Gives the blocks of `Sampler`, to the byte, by way of an edge list. Arguments and errors are the same."""

    FUSED = False
