"""The training loop, what it asks of a technique, and the checkpoints that it writes."""
