"""A source whose rows reach the device over a link of a set speed."""

from __future__ import annotations

import torch

from graphmill.trainers.devices.link import Link
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import FeatureSource, RowRequest


class LinkedSource(FeatureSource):
    """A source whose rows reach the device over a link.

    Args:
        source: the source of rows; the link carries the bytes that it books as moved from host to device.
        link: the link, shared by all users of the source.
    """

    def __init__(self, source: FeatureSource, link: Link):
        self.source, self.link = source, link
        self.width, self.dtype, self.row_bytes = source.width, source.dtype, source.row_bytes
        self.collective, self.slotted, self.mark = source.collective, source.slotted, source.mark
        self.stage, self.stage_windows, self.tiered = source.stage, source.stage_windows, source.tiered
        self.staged_bytes = source.staged_bytes

    def gather(self, batch: RowRequest, out: torch.Tensor, ledger: Ledger) -> None:
        """Gathers from the source, and returns when the link has carried the bytes."""
        since, moved = self.link.now(), Ledger()
        self.source.gather(batch, out, moved)
        self.link.carry(moved.moved_bytes("h2d"), since)
        ledger.merge(moved)


def linked(source: FeatureSource, device: Device) -> FeatureSource:
    """Returns a source whose rows cross the modelled link of a device, if it has one."""
    link = device.link("h2d")
    return source if link is None else LinkedSource(source, link)
