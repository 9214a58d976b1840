"""The profile of tables: their columns, how relations join them, classes, and what looks like a leak; of a folder or of a pipeline."""
