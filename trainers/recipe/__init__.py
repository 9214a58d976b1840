"""A train table: its keys, its technique, the versions that it decides and the artifacts that it reads; without torch."""
