"""Graphs given as arrays by name: the object that DGL, PyG and the sources of packages share."""
