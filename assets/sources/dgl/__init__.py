"""The `dgl` source: graphs that DGL saved."""
