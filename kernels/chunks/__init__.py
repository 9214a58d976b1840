"""Parts and chunks of a graph for full-graph passes: how they are cut and scheduled, and how their rows move."""
