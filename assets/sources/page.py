"""Texts of the page of a raw source."""

from assets.building.page import Page

RAW_PAGE = Page(
    about="The files outside the store that the source reads, which nothing here builds. "
    "They stand on the map of assets so that one sees which artifacts depend on them. "
    "Observe this asset after the files changed: it digests them, and what was built from other content is marked as stale.",
    docs="docs/own-data.md",
    kinds=frozenset({"file"}),
)
