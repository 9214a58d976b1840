"""A user's module over blocks or over a graph, cut between its layers, for trainers that run one layer at a time."""
