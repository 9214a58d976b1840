"""Passes over the chunks of a whole graph."""
