"""Edges as seeds, for trainings that predict links: their ends, negatives and splits, and blocks without the edges that are predicted."""
