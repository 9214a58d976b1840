"""From a pipeline file to checked tables, and from tables to the steps that build artifacts."""
