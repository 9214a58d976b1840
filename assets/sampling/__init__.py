"""The `[sampling]` table, and how it becomes a sampler."""
