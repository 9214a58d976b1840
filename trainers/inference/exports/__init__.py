"""A trained model for other programs: torch programs of its layers, and its weights as modules of PyG and DGL."""
