"""The tiered gather on a GPU: picks a variant of kernels/cuda/rows/gather.cu and launches it.

Device rows are read where they are; host rows are read over the bus from pinned memory, without a copy before; staged and peer rows
likewise. Bytes moved are those of kernels/rows/gather.py. A lane moves PACK elements per step, as many as make 16 bytes on the wider side
and as width and alignment of all tiers allow; 602 float32 columns are 8-byte steps, 101 are 4-byte steps.
"""

from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_int32, dtype_name
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import C_TYPES, launch
from graphmill.kernels.cuda.protocol import RowsView
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.slots import Tiers

STORED_TYPES = {**C_TYPES, "int8": ("signed char", 1), "uint8": ("unsigned char", 1)}
"""Names in CUDA and bytes of the types that tiers may have."""
IN_FLIGHT = 4
SEGMENT_BYTES = 128
NO_FAULT = 2**31 - 1
NO_ROWS = RowsView(0, 0, 0, 0, "")


def gather_tiered_cuda(slots: Any, tiers: Tiers, out: Any, device: CudaDevice, trusted: bool = False) -> Any:
    """Writes the rows that slots name to `out`, which is on the device; see `graphmill.kernels.rows.gather.gather_tiered`.

    Slots in NumPy are checked before anything is launched, and the call returns without waiting. Slots on the device are checked by the
    kernel: the call waits for it, and rows of slots that name none are zeros then.

    Args:
        slots: i32[n], a NumPy array or contiguous on the device.
        tiers: device, staged and peer rows in device memory, host rows (and staged ones, if they are there) in pinned memory.
        out: [n, F] of float32, float64 or the stored dtype, on the device, C-contiguous.
        trusted: whether slots on the device are known to name rows; then the call returns without waiting, and a wrong one leaves zeros.
    """
    if len(slots) >= NO_FAULT:
        raise InputError(f"{len(slots):,} slots", f"gather at most {NO_FAULT - 1:,} rows at once")
    target = _target(out, (len(slots), tiers.width), tiers, device)
    if len(slots) * tiers.width == 0:
        return out
    own = [NO_ROWS if rows is None else device.rows(rows, f"the {name} tier") for name, rows in tiers.own()]
    peers = [device.rows(rows, f"peer {index}") for index, rows in enumerate(tiers.peers)]
    checked = not device.holds(slots)
    slots = _upload_slots(slots, tiers, peers, device) if checked else slots
    if dtype_name(slots.dtype) != "int32" or len(slots.shape) != 1:
        raise InputError(f"slots is {slots.dtype}{list(slots.shape)}", f"give slots as int32[{len(slots)}]")
    fault = device.zeros((1,), np.int32)
    _launch(slots, own, peers, tiers.peer_stride, target, fault, device)
    if not checked and not trusted and (found := int(device.download(fault)[0])):
        position = NO_FAULT - found
        slot = int(device.download(slots[position : position + 1])[0])
        problem = f"slot {slot} at position {position} names no row of the tiers"
        raise InputError(problem, "stage the batch first, and gather from the tiers that the slots were made for")
    return out


def _upload_slots(slots: Any, tiers: Tiers, peers: list[RowsView], device: CudaDevice) -> Any:
    """Checks slots that are in NumPy, and returns them on the device."""
    slots = as_int32(slots, "slots", len(slots))
    counts = [-1 if rows is None else len(rows) for _, rows in tiers.own()]
    _native.check_slots(slots, counts, [rows.count for rows in peers], tiers.peer_stride)
    return device.upload(slots, waits=False)


def _launch(
    slots: Any,
    own: list[RowsView],
    peers: list[RowsView],
    peer_stride: int,
    target: RowsView,
    fault: Any,
    device: CudaDevice,
) -> None:
    variant = pick_variant(target, [*own, *peers])
    places = np.array([[p.pointer, p.row_bytes, p.count] for p in peers], np.int64)
    table = device.upload(places, waits=False) if peers else None
    arguments = (
        np.uint64(device.pointer(slots, "slots")),
        np.int64(target.count),
        np.int64(target.width // variant["PACK"]),
        *(value for rows in own for value in (np.uint64(rows.pointer), np.int64(rows.row_bytes), np.int64(rows.count))),
        np.uint64(0 if table is None else device.pointer(table, "the table of peers")),
        np.int32(len(peers)),
        np.int32(max(1, peer_stride)),
        np.uint64(target.pointer),
        np.uint64(device.pointer(fault, "fault")),
    )
    launch(device, "rows/gather", "gather_tiered", -(-target.count // IN_FLIGHT) * variant["TEAM"], arguments, variant)


def pick_variant(target: RowsView, tiers: list[RowsView]) -> dict[str, Any]:
    """Returns the preprocessor names of gather.cu for these rows.

    PACK is the largest number of elements whose bytes are at most 16 on both sides and at which every row starts aligned. TEAM is the
    number of lanes of which the fewest idle, among a warp (for a narrow row: as many as it has steps) and the parts of one that still load
    128 bytes together.
    """
    stored = next(rows.dtype for rows in tiers if rows.dtype)
    (source, from_bytes), (result, to_bytes) = STORED_TYPES[stored], STORED_TYPES[target.dtype]
    pack = 16 // max(from_bytes, to_bytes)
    while pack > 1 and not _aligned(target, tiers, pack, from_bytes, to_bytes):
        pack //= 2
    packs = target.width // pack
    whole = 1 << (packs - 1).bit_length()  # lanes that do a row in one step
    wide = [lanes for lanes in (32, 16, 8) if lanes < whole and lanes * pack * from_bytes >= SEGMENT_BYTES]
    team = min([*wide, min(32, whole)], key=lambda lanes: (-(-packs // lanes) * lanes, -lanes))
    return {"FROM": source, "TO": result, "PACK": pack, "TEAM": team, "IN_FLIGHT": IN_FLIGHT}


def _aligned(target: RowsView, tiers: list[RowsView], pack: int, from_bytes: int, to_bytes: int) -> bool:
    places = [value for rows in tiers if rows.count for value in (rows.pointer, rows.row_bytes)]
    return (
        target.width % pack == 0
        and target.pointer % (pack * to_bytes) == 0
        and all(place % (pack * from_bytes) == 0 for place in places)
    )


def _target(out: Any, shape: tuple[int, int], tiers: Tiers, device: CudaDevice) -> RowsView:
    target, stored = device.rows(out, "out"), dtype_name(tiers.dtype)
    if stored not in STORED_TYPES:
        raise InputError(f"the tiers are {stored}", f"store rows as {', '.join(STORED_TYPES)}")
    if target.dtype not in ("float32", "float64", stored):
        raise InputError(f"out is {target.dtype}, rows are stored as {stored}", f"give float32, float64 or {stored}")
    if tuple(out.shape) != shape:
        raise InputError(f"out is {target.dtype}{list(out.shape)}", f"give {target.dtype}{list(shape)}")
    if target.count > 1 and target.row_bytes != target.width * STORED_TYPES[target.dtype][1]:
        raise InputError("out has rows that are apart", "give a C-contiguous matrix")
    return target
