"""The devices that a training computes on, with budgets, links, memory and threads."""
