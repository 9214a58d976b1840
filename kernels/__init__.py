"""Arrays in, arrays out: the reference, CPU and CUDA version of every hot operation.

Arguments that mean the same everywhere, and that docstrings leave out: `threads` is the number of native threads, on which no result
depends; `device` runs the kernel and holds its arrays; `topology` has the in-neighbours of all N = `num_nodes` nodes; `seed` is the run's,
which names all random decisions; `batch` is the key of those of one batch; `allocate` makes arrays of N elements. A `NAME_cuda` takes the
arguments of NAME, whose arrays lie on the device, and raises the same errors. A function raises `InputError` for an argument whose shape,
dtype or range is not the one that is documented; its section Raises says which errors it finds besides.
"""

# In a clone this folder may stand on Python's path: its modules would be loaded twice.
if __name__ != "graphmill.kernels":
    raise ImportError(f"{__name__} of {__file__} is a part of graphmill: import graphmill.kernels", name=__name__)
