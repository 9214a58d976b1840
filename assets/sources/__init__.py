"""The sources of graphs: each kind is a module or a folder, named in `assets.sources.registry.SOURCES`."""
