"""Operations of model layers on blocks: sums, attention, dropout; forward and backward."""
