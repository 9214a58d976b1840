"""The budgets stage: how many bytes of features each level of the memory may hold.

The artifact has no arrays: it is the numbers of its summary, with the arithmetic in words; `graphmill budgets PIPELINE` prints them.
[memory] gives a size, a share of the feature bytes ("10%", "5x") or "auto". Budgets without "auto" have the same version on every
machine. "auto" is computed from the measured numbers of the home (assets/budgets/measured.py):

    device    a quarter of the memory for a logical device, less the largest `workspace` of a train table; of a GPU what was free, less a
              sixteenth, and less the larger of the step with its `queue` and `eval_workspace`
    host      half of the memory; less the device's share if the device is logical; less the largest `queue` + `eval_workspace`
    disk      half of the bytes that were free on the disk of the home; it bounds the bytes of `cache_plan`

`edge_host` and `edge_disk` are budgets of the plan of rows of edges, and not of this artifact.

No budget is below 0. The device is a logical one, a part of the same memory that is held to its size, unless a train table has `device =
"cuda"` and the home was measured with a GPU. A step on a GPU counts with the largest `workspace`, or with an eighth of the free bytes if a
table has none. If other tables train on the CPU, the lesser of the two budgets is that of both. The trainer adjusts a device budget of
"auto" by one simulated step (trainers/loop/device_room.py): on the CPU downwards, on a GPU to what is free then. Rows that were packed
keep to the budget that is resolved here.

Cost: next to none.
"""
