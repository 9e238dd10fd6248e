"""A place on disk for a cursor, so that a killed run goes on where it was."""

from __future__ import annotations

import os
from pathlib import Path

from attrs import field, frozen

from integration_sdk._disk import sync_directory
from integration_sdk.errors import ConfigurationError

LONGEST = 64 * 1024


@frozen
class Checkpoint:
    """A file that holds one cursor; it is replaced as a whole, never half written.

    Attributes:
        path: The file. Its directory must exist.
    """

    path: Path = field(converter=Path)

    def load(self) -> str | None:
        """The cursor saved last; None where there is none yet.

        Raises:
            ConfigurationError: The file holds no text, or cannot be read.
        """
        try:
            with self.path.open(encoding="ascii") as file:
                return file.read(LONGEST).strip() or None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"checkpoint {self.path} cannot be read: {error}") from None

    def save(self, cursor: str) -> None:
        """Keep *cursor*; when this returns it survives a power cut.

        Raises:
            ConfigurationError: The file cannot be written.
        """
        new = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
        try:
            with new.open("w", encoding="ascii") as file:
                file.write(cursor)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            raise ConfigurationError(f"checkpoint {self.path} cannot be written: {error}") from None

    def clear(self) -> None:
        """Forget the cursor: the next run starts at the beginning."""
        self.path.unlink(missing_ok=True)
