"""What a trainer adds to the shared parts, one file per technique."""
