"""The sources of feature rows: memory, mapped file, cache tiers, packed chunks."""
