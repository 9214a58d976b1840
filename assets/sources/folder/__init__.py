"""A folder of tables that no pipeline file describes: what its columns hold, how its tables name one another, and a `[graph]` of them."""
