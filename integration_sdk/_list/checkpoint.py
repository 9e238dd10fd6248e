"""A cursor in a file, so that a run that was killed can be resumed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock

from attrs import define, field, frozen

from integration_sdk._system import sync_directory
from integration_sdk.errors import ConfigurationError

LONGEST = 64 * 1024


@define(eq=False)
class _Order:
    """The order in which saves were requested, whichever thread runs first."""

    lock: Lock = field(factory=Lock)
    turns: Iterator[int] = field(factory=partial(count, 1))
    saved: int = 0


def _path(given: object) -> Path:
    if isinstance(given, str | os.PathLike) and isinstance(os.fspath(given), str):
        return Path(given)
    raise ConfigurationError(f"checkpoint must be the path of a file, not {given!r}")


@frozen
class Checkpoint:
    """A file that holds one cursor. It is replaced atomically.

    Attributes:
        path: The file. Its directory must exist.
    """

    path: Path = field(converter=_path)
    _order: _Order = field(init=False, factory=_Order, eq=False, repr=False)

    def __reduce__(self) -> tuple[type[Checkpoint], tuple[Path]]:
        return Checkpoint, (self.path,)

    def load(self) -> str | None:
        """Return the cursor that was saved last; None if there is none.

        Raises:
            ConfigurationError: The file is not text or cannot be read, or its directory
                does not exist.
        """
        try:
            with self.path.open(encoding="ascii") as file:
                return file.read(LONGEST).strip() or None
        except FileNotFoundError:
            if not self.path.parent.is_dir():
                raise ConfigurationError(
                    f"checkpoint {self.path}: there is no directory {self.path.parent}; make it"
                ) from None
            return None
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"checkpoint {self.path} cannot be read: {error}") from None

    def save(self, cursor: str) -> None:
        """Save *cursor*; once this returns, it survives a power cut.

        Raises:
            ConfigurationError: The file cannot be written, or *cursor* is not a cursor.
        """
        self._saving(cursor)()

    def _saving(self, cursor: str) -> Callable[[], None]:
        """Return a function that saves *cursor*, in any thread, unless a later one is saved."""
        return partial(self._save, cursor, next(self._order.turns))

    def _save(self, cursor: str, turn: int) -> None:
        with self._order.lock:
            if turn > self._order.saved:
                self._replace(cursor)
                self._order.saved = turn

    def _replace(self, cursor: str) -> None:
        new = self.path.with_name(f".{self.path.name}.{os.urandom(4).hex()}.new")
        try:
            with new.open("x", encoding="ascii") as file:
                file.write(cursor)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
            sync_directory(self.path.parent)
        except (OSError, TypeError, ValueError) as error:  # full; no cursor; no path
            with suppress(OSError, ValueError):  # on a disk that is read-only even this fails
                new.unlink()
            raise ConfigurationError(f"checkpoint {self.path} cannot be written: {error}") from None

    def clear(self) -> None:
        """Remove the file, so that the next run starts from the beginning.

        Raises:
            ConfigurationError: The file cannot be removed.
        """
        try:
            self.path.unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            what = f"checkpoint {self.path} cannot be removed: {error}"
            raise ConfigurationError(what) from None
