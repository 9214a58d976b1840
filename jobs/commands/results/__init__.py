"""The commands about results: what is there, scores and costs, one artifact, and questions about all."""
