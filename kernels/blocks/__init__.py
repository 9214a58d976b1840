"""What is made of a sampled block: its transpose, edge weights, and the forms of other libraries."""
