"""The technique `fresh`: embeddings of earlier steps take the place of computed ones (FreshGNN)."""
