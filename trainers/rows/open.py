"""The choice of how the rows of a table are read: a train table's key `features`."""

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.kernels.errors import InputError
from graphmill.kernels.warn_once import warn_once
from graphmill.trainers.rows.direct import DirectSource
from graphmill.trainers.rows.source import MappedSource, MemorySource, TableSource

SOURCES = {"memory": MemorySource, "mapped": MappedSource, "direct": DirectSource}


def open_source(table: FeatureTable, where: str, threads: int = 1, reserved_bytes: int = 0) -> TableSource:
    """Returns the source of a table's rows, which are the same in each.

    Args:
        where: "memory", "mapped", "direct", or "auto": mapped if the table takes at most half of the memory that is free, and leaves what
            the run needs, else direct.
        reserved_bytes: bytes that the run is still to take.

    Raises:
        InputError: the table is damaged, or direct reads were asked for by name and its file system has none.
    """
    if where != "auto":
        return SOURCES[where](table, threads)
    if fits_memory(table.num_bytes, reserved_bytes):
        return MappedSource(table, threads)
    try:
        return DirectSource(table, threads)
    except InputError as error:
        sizes = f"the features take {format_bytes(table.num_bytes)}, more than the memory that is free has space for"
        warn_once(f"{sizes}; their rows go through the page cache, which is slow: {error.problem}")
        return MappedSource(table, threads)
