"""The technique `fresh-distributed`: ranks whose batches are pruned by histories of their parts (FreshGNN over FastSample)."""
