"""What a training learns of a node or an edge: its loss, its metrics, and the answer that ignores it, for each kind of task."""
