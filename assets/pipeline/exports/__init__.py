"""Artifacts as other libraries hold them: Polars frames, graphs of DGL and data of PyG.

All functions copy or map the arrays of an artifact and write nothing. They import their libraries when called; a missing one is an
`InputError` that names the package to install.
"""
