"""How a training is opened from its artifacts, and the `model` stage that writes its result."""
