"""Neighbour sampling: plans of epochs, and blocks of drawn neighbours."""
