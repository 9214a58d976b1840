"""The cost of a training: bytes and counts, time-lines, progress."""
