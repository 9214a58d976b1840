"""Where the learnable rows of nodes lie if they are not in memory."""
