"""Neighbour sampling: plans of epochs, sampled blocks, their transposes and edge weights."""
