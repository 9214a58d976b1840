"""From where feature rows come: memory, mapped file, cache tiers, packed chunks."""
