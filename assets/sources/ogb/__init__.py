"""The `ogb` source: folders in the layouts of the Open Graph Benchmark."""
