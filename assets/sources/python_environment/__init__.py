"""The `python-environment` source: the modules of installed Python packages and their imports."""
