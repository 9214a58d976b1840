"""One training loop; each technique is a source of mini-batches or an executor around it."""

if (
    __name__ != "graphmill.trainers"
):  # in a clone this folder may stand on Python's path: its modules would be loaded twice
    raise ImportError(f"{__name__} of {__file__} is a part of graphmill: import graphmill.trainers", name=__name__)
