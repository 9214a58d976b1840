"""The commands about this machine, its web UI, and machines that are not there."""
