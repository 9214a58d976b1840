"""Embeddings of earlier steps in place of computed ones (FreshGNN): pruned blocks, the arena that holds the rows, and admission to it."""
