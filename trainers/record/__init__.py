"""The cost of a training and its result: bytes and counts, time-lines, progress, scores."""
