"""What a training learns of a node: its loss, its metrics, and the answer that ignores the node, for each kind of task."""
