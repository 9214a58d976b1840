"""The technique `distributed`: ranks share a training, each with the rows of its own parts (FastSample, section 3.3)."""
