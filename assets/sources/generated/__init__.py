"""Graphs that are generated, of any size."""
