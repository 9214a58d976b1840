"""The table `[train.fresh-distributed]`."""

from dataclasses import dataclass, field
from typing import Literal

from graphmill.trainers.techniques.distributed.settings import DistributedSettings
from graphmill.trainers.techniques.fresh.settings import FreshSettings


@dataclass(frozen=True, kw_only=True)
class FreshDistributedSettings(DistributedSettings, FreshSettings):
    """How ranks share a training whose batches are pruned by the histories of their parts: the keys of both techniques."""

    # Source of the rows of training batches: table = the shards of the ranks; packed = packed chunks of the rank's stored batches, so that
    # an epoch exchanges gradients alone.
    rows: Literal["table", "packed"] = field(default="table", metadata={"hashed": False})


SETTINGS = FreshDistributedSettings
