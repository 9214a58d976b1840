"""Artifacts as other libraries hold them: Polars frames, graphs of DGL and data of PyG.

Everything here copies or maps what an artifact holds and writes nothing. The libraries are imported when they are asked for; one that is
not installed is an `InputError` that names what to install.
"""
