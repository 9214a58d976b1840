"""What trainings take before they start: batches, steps, memory, bytes over links, seconds."""
