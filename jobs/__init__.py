"""The top layer: the command line and the shipped pipelines."""
