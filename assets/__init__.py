"""What is stored, and how it is built from a pipeline file.

The rooms, in the order in which a graph passes them:

    sources          readers of raw graphs, and generators
    graph            the graph as it is stored: topology, features, labels, splits
    sampling         the `[sampling]` table, and how it becomes a sampler
    hotness          which nodes mini-batches ask for most
    budgets          bytes of feature rows that each level of the memory may hold
    samples          mini-batches of K epochs, sampled before training
    cache_plan       which level serves every row of every stored batch
    packed_chunks    the rows that each stored batch reads from disk, packed for it

Arguments that mean the same everywhere, and that docstrings leave out: `progress` listens to a stage, `writer` takes the files of its
artifact, `threads` is a number of threads, on which no byte depends, `home` is None for the default home, and N = `num_nodes`.
An override raises the errors of the method that it overrides, `open_NAME` an `InputError` for an artifact of another stage, or one that
is damaged or lacks an array, and all that writes an `InputError` if the disk is full.

Under them lie `storage` (artifacts: versions, digests, leases, readers) and `building` (how a stage becomes an artifact). `pipeline`
turns a TOML file into the steps that build them, and `definitions.py` turns steps into Dagster's assets.
"""

# In a clone this folder may stand on Python's path: its modules would be loaded twice.
if __name__ != "graphmill.assets":
    raise ImportError(f"{__name__} of {__file__} is a part of graphmill: import graphmill.assets", name=__name__)
