"""Tables spread over the tiers, for every version of the tiered gather."""

import numpy as np

from graphmill.kernels.rows.slots import DEVICE, HOST, NO_FEATURES, PEER, STAGED, Tiers, make_slots

WIDTHS = (1, 3, 100, 128, 172, 300, 602, 768)


def random_rows(generator, num_rows, width, dtype):
    """Any bit pattern: infinities, NaN and subnormal numbers included."""
    dtype = np.dtype(dtype)
    return generator.integers(0, 256, (num_rows, width * dtype.itemsize), np.uint8).view(dtype).reshape(num_rows, width)


def random_tiers(generator, width, dtype, counts=(7, 9, 5), peers=(4, 0, 6)):
    """Tiers of these many rows (None: absent), the staged rows apart from each other, and peers with a stride above their sizes."""
    dtype = np.dtype(dtype)
    device, host, staged = (None if n is None else random_rows(generator, n, width, dtype) for n in counts)
    if staged is not None:
        wide = random_rows(generator, len(staged), width + 3, dtype)
        wide[:, :width] = staged
        staged = wide[:, :width]
    others = tuple(random_rows(generator, n, width, dtype) for n in peers)
    return Tiers(device=device, host=host, staged=staged, peers=others, peer_stride=8 if peers else 0)


def valid_slots(tiers):
    """Every slot that the tiers have a row for, and the one of a node without features."""
    found = [np.array([NO_FEATURES], np.int32)]
    for tier, rows in ((DEVICE, tiers.device), (HOST, tiers.host), (STAGED, tiers.staged)):
        if rows is not None:
            found.append(make_slots(tier, np.arange(len(rows))))
    found += [make_slots(PEER, p * tiers.peer_stride + np.arange(len(rows))) for p, rows in enumerate(tiers.peers)]
    return np.concatenate(found)
