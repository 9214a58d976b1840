"""What a model learns of a node, as the graph stores it: a class, several labels, or numbers."""
