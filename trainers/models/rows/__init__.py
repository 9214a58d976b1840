"""Learnable rows of nodes in files, for tables that are larger than the memory."""
