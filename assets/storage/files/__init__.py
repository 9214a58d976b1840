"""Files of a home: arrays, digests, sealed documents, and reading that compares."""
