"""Which mini-batches: sampled online, or read from stored samples."""
