"""The `[sampling]` table, and the samplers that it configures."""
