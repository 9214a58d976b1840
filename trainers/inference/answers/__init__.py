"""The tables that `graphmill predict` writes: of nodes by the kind of their task, and of links."""
