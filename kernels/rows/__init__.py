"""Feature rows: which tier holds them, and how they are read from memory, device and disk."""
