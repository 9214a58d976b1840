"""Links: heads that score pairs of nodes, their losses, learnable rows alone, and ranks among all candidates."""
