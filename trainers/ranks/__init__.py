"""Processes that share one training: how they find one another, what they exchange, and how a failure ends all of them."""
