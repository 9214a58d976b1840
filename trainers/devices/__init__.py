"""On what a training computes: devices with budgets, links, memory and threads."""
