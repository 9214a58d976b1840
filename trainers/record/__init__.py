"""What a training cost: bytes and counts, time-lines, progress."""
