"""What outlives a power cut beyond the contents of a file: its name."""

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make a rename durable; where directories cannot be synced the system does it by itself."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
