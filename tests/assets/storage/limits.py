"""Ways to meet the end of a disk."""

import resource
from contextlib import contextmanager


@contextmanager
def file_size_limit(num_bytes):
    """Files written inside may have at most so many bytes; more is EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
