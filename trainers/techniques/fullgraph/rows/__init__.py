"""Rows of a full-graph training: where they are, and what moves them."""
