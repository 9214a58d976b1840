"""Building and generating topologies: compressed columns, edge order, random graphs."""
