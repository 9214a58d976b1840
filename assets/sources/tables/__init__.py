"""The `tables` source: a Parquet or CSV table for each node type and for each relation."""
