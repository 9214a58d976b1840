"""The commands about pipeline files: what they hold, what they take, and which technique fits."""
