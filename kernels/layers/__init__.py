"""What layers of a model compute on blocks: sums, attention, dropout; forward and backward."""
