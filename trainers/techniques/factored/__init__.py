"""The technique `factored`: some devices sample, others train, with a queue between them (FGNN/GNNLab, section 5)."""
