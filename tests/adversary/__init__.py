"""Seeded attacks that can be replayed: whatever is tried, the answer is one message or a right result."""
