"""The budgets stage: how many bytes of features each level of the memory may hold.

The artifact has no arrays: it is the numbers of its summary, with the arithmetic in words; `graphmill budgets PIPELINE` prints them.
[memory] gives a size, a share of the feature bytes ("10%", "5x") or "auto". Budgets without "auto" have the same version on every
machine. "auto" is computed from the measured numbers of the home (assets/budgets/measured.py):

    device    a quarter of the memory for a logical device; less the largest `workspace` of a train table
    host      half of the memory; less the device's share if the device is logical; less the largest `queue` + `eval_workspace`
    disk      half of the bytes that were free on the disk of the home; it bounds the bytes of `cache_plan`

No budget is below 0. On a machine without a GPU the device is a logical one: a part of the same memory that is held to its size. The
trainer lowers a device budget of "auto" further if one simulated step shows that training needs more (trainers/training/probe_step.py).

Cost: next to none.
"""
