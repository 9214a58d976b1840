"""The commands about the store: compare, repair, collect, copy."""
