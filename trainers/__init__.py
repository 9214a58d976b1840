"""One training loop; each technique is a source of mini-batches or an executor around it."""
