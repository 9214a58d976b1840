"""The allocation of devices to sampling and training: the paper's formula, its metric for switching, and a simulation of choices."""
