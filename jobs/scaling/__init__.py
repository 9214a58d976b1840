"""A pipeline on many machines, on paper: what each of them holds, what crosses the network, how long it takes, and what breaks first.

Stages and trainings have formulas of their memory, disk and work already (`Stage.need`), which are asked here about a graph that does
not exist. This room adds the machines: which steps they share, what each fetches, and at which speed. The bytes between ranks are formulas
of the technique (trainers/techniques/distributed/costs.py), which are exact; `cluster.py` has the counts of a run that was made.

Not modelled: stragglers, a store that serves fewer machines at once than there are, failures, and reading a source's own files.
"""
