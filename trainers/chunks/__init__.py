"""Full-graph passes over chunks: which rows a step moves, the buffers they lie in, and the passes of a layer (HongTu, sections 4 to 6)."""
