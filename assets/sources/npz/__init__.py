"""The `npz` source: NumPy archives."""
