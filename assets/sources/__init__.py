"""The sources of graphs: each kind is a class of its keys, which `graphmill.assets.sources.registry` finds by its name."""
