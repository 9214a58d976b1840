"""Where graphs come from: each kind of source is a module or a folder, named in `assets.sources.registry.SOURCES`."""
