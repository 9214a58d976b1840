"""Neighbours as of a time, for graphs whose edges have times."""
