"""Models as lists of layers, each split into an aggregation and an update."""
