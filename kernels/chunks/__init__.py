"""Parts and chunks of a graph for full-graph passes: how they are cut and scheduled."""
