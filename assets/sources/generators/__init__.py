"""Sources that generate a graph: R-MAT, stochastic block model, citation graph."""
