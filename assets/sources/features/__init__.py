"""The rows of features: their types, blocks of rows, and numbers that a type rounds."""
