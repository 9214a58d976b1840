"""The top layer: the command line and the shipped pipelines."""

if __name__ != "graphmill.jobs":  # in a clone this folder may stand on Python's path: its modules would be loaded twice
    raise ImportError(f"{__name__} of {__file__} is a part of graphmill: import graphmill.jobs", name=__name__)
