"""Which devices sample and which train: the paper's formula, its metric for switching, and a simulation that compares choices."""
