"""How often mini-batches visit a node: counters, estimates, rankings."""
