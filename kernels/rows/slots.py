"""Slots: the place of the row of each input of a mini-batch, in one int32.

A slot is `tier << 29 | row`: the row of one of four tiers. Two values name no row: -1, the node has no features; -2, its row is in none
of these tiers and has to be staged first. On the peer tier the row is `peer * peer_stride + row`. So a batch's slots are 4 bytes per
input, a static placement is one int32[N], and the gather needs neither masks nor a list per tier.

Limit: a tier has fewer than 2^29 (536,870,912) rows; on the peer tier all peers together.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

DEVICE, HOST, STAGED, PEER = 0, 1, 2, 3
TIER_NAMES = ("device", "host", "staged", "peer")
NO_FEATURES, ELSEWHERE = -1, -2
ROW_BITS = 29
MAX_ROWS = 1 << ROW_BITS


def make_slots(tier: int, rows: Any) -> Array:
    """Returns the slots i32[n] of `rows`, integers[n] in 0 .. 2^29 - 1, of one tier: DEVICE, HOST, STAGED or PEER."""
    if tier not in (DEVICE, HOST, STAGED, PEER):
        raise InputError(f"tier = {tier}", "use DEVICE (0), HOST (1), STAGED (2) or PEER (3)")
    rows = np.asarray(rows)
    if rows.size and rows.dtype.kind not in "iu":
        raise InputError(f"rows are {rows.dtype}", "give integers")
    if rows.size and not 0 <= int(rows.min()) <= int(rows.max()) < MAX_ROWS:
        outside = rows.max() if rows.min() >= 0 else rows.min()
        problem = f"row {outside} of the {TIER_NAMES[tier]} tier does not fit into a slot"
        raise InputError(problem, f"a tier has rows 0 .. {MAX_ROWS - 1:,}; keep fewer rows there")
    return (tier << ROW_BITS | rows.astype(np.int64)).astype(np.int32)


def split_slots(slots: Array) -> tuple[Array, Array]:
    """Returns (tier i8[n], row i32[n]) of slots i32[n]; slots without a row keep their value, -1 or -2, in both."""
    slots = np.asarray(slots, np.int32)
    tier = np.where(slots < 0, slots, slots >> ROW_BITS).astype(np.int8)
    return tier, np.where(slots < 0, slots, slots & (MAX_ROWS - 1)).astype(np.int32)


@dataclass(frozen=True, kw_only=True)
class Tiers:
    """The rows that slots point into. Every array is [rows, F] of one stored dtype; rows may be apart, columns are adjacent."""

    # Rows in this device's memory (on a logical device, in its cache), or None.
    device: Any = None
    # Rows in the machine's memory (pinned if a GPU reads them), or None.
    host: Any = None
    # Rows that were fetched for this batch: from disk or another rank, or None.
    staged: Any = None
    # One array per device, rows that other devices hold; slot row = peer * peer_stride + row.
    peers: tuple[Any, ...] = ()
    # Rows between the first slots of neighbouring peers; at least the rows of the largest.
    peer_stride: int = 0

    def __post_init__(self) -> None:
        given = self.given()
        if not given:
            raise InputError("there is no tier to gather from", "give at least one of device, host, staged and peers")
        (first_name, first), *others = given
        for name, rows in given:
            if len(rows.shape) != 2:
                raise InputError(f"the {name} tier has shape {list(rows.shape)}", "give a matrix of rows")
            if rows.shape[0] > MAX_ROWS:
                raise InputError(f"the {name} tier has {rows.shape[0]:,} rows", f"keep at most {MAX_ROWS:,} in a tier")
        for name, rows in others:
            if (dtype_name(rows.dtype), rows.shape[1]) != (dtype_name(first.dtype), first.shape[1]):
                raise InputError(
                    f"the {name} tier is {rows.dtype}[:, {rows.shape[1]}], the {first_name} tier "
                    f"{first.dtype}[:, {first.shape[1]}]",
                    "keep all tiers in one dtype and width",
                )
        if self.peers:
            self._check_peers()

    def _check_peers(self) -> None:
        largest = max(rows.shape[0] for rows in self.peers)
        if self.peer_stride < max(1, largest):
            raise InputError(f"peer_stride = {self.peer_stride}, a peer has {largest} rows", f"use at least {largest}")
        if len(self.peers) * self.peer_stride > MAX_ROWS:
            problem = f"{len(self.peers)} peers with stride {self.peer_stride:,} need {len(self.peers) * self.peer_stride:,} rows"
            raise InputError(problem, f"keep peers * peer_stride at most {MAX_ROWS:,}")

    def own(self) -> list[tuple[str, Any]]:
        """Returns (name, rows or None) of the device, host and staged tiers, in that order."""
        return [(name, getattr(self, name)) for name in TIER_NAMES[:PEER]]

    def given(self) -> list[tuple[str, Any]]:
        """Returns (name, rows) of every array that is there, in the order of the tiers."""
        peers = [(f"peer {index}", rows) for index, rows in enumerate(self.peers)]
        return [(name, rows) for name, rows in self.own() + peers if rows is not None]

    @property
    def width(self) -> int:
        """Columns of a row."""
        return self.given()[0][1].shape[1]

    @property
    def dtype(self) -> Any:
        """The stored dtype."""
        return self.given()[0][1].dtype
