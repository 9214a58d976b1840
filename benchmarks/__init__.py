"""One file a claim: equality is checked first, then times are compared inside one interleaved run."""
