"""Processes that share one training: how they meet, their collective calls, and how a failure ends all of them."""
