"""Bytes and seconds of full-graph passes before they run."""
