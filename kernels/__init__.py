"""Arrays in, arrays out: the reference, CPU and CUDA version of every hot operation."""

if (
    __name__ != "graphmill.kernels"
):  # in a clone this folder may stand on Python's path: its modules would be loaded twice
    raise ImportError(f"{__name__} of {__file__} is a part of graphmill: import graphmill.kernels", name=__name__)
