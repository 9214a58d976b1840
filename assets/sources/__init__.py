"""The sources of graphs: each kind is a module or a folder, named in `graphmill.assets.sources.registry.SOURCES`."""
