"""Where graphs come from: one source a file."""
