"""The technique `fresh-factored`: some devices sample, others prune by a history of embeddings and train."""
