"""Makes renamed files survive a power cut."""

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make a rename in *directory* durable; only POSIX systems need this."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
