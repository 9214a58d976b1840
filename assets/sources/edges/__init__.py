"""The `edges` source: Parquet and CSV tables of edges and nodes, larger than memory."""
