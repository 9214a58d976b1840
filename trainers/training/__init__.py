"""Opens a training from its artifacts, and the `model` stage that writes its result."""
