"""Ranks of a training on the nodes of a Ray cluster; nothing else of the ranks knows of it."""
