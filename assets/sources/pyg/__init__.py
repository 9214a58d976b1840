"""The `pyg` source: graphs of PyG that `torch.save` wrote."""
