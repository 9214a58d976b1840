"""The training loop, its interface to techniques, and the checkpoints that it writes."""
