"""Where a journal is: files of its owner alone, with one user at a time, under their own names.

* Only the owner's own regular files, mode 0600; no symbolic links.
* One user at a time: ``flock`` on ``<name>-lock``, which the death of a process releases.
* A file that is moved or deleted while it is open would be written on, and nobody would find what
  is in it; a lock that is deleted is none. So the names are looked at before each commit.
"""

import os
import stat
from pathlib import Path

from integration_sdk._system import can_lock, lock, unlock
from integration_sdk.errors import JournalError, JournalInUse

_MAGIC = b"SQLite format 3\0"


def take(path: Path) -> int:
    """Lock the journal *path*, and create it if it is missing; return what `unlock` takes.

    Raises:
        JournalInUse: Another process or coordinator has it.
        JournalError: It is somebody else's, or no database; or this is no POSIX system.
        OSError: A file cannot be opened.
    """
    if not can_lock():
        raise JournalError(
            f"The journal {path} cannot be locked: that needs a POSIX system, such as Linux or "
            "macOS. Without journal=, pushes are kept in memory."
        )
    refuse_others(path)
    held = own_file(lock_of(path))
    try:
        _lock_for_us(held, path)
        os.close(own_file(path))
        for suffix in ("-wal", "-shm"):
            refuse_strangers(path.with_name(path.name + suffix))
    except BaseException:
        unlock(held)
        raise
    return held


def lock_of(path: Path) -> Path:
    return path.with_name(path.name + "-lock")


class Names:
    """The names of an open journal and its lock, and the files that had them."""

    def __init__(self, path: Path) -> None:
        real = path.resolve()  # a directory's link that is set anew moves nothing
        self._files = [(one, one.stat()) for one in (real, lock_of(real))]

    def are_kept(self) -> bool:
        """Return whether both names stand for the same files as before."""
        return all(_is_still(path, file) for path, file in self._files)


def _is_still(path: Path, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), file)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # there is no telling
        return True


def own_file(path: Path) -> int:
    """Open or create a file that only its owner can access; return its descriptor."""
    refuse_strangers(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def refuse_strangers(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        what = "a link: name the file itself" if stat.S_ISLNK(found.st_mode) else "no regular file"
        raise JournalError(f"The journal {path} cannot be opened: it is {what}.")
    if found.st_nlink > 1:
        raise JournalError(
            f"{path} has a second name (a hard link), under which another process could open it: "
            "copy the file and open the copy."
        )
    if found.st_uid != os.geteuid():
        raise JournalError(f"{path} belongs to user {found.st_uid}: use a journal of your own.")


def refuse_others(path: Path) -> None:
    """Refuse a file that is not a database, before anything of it is changed, even its mode."""
    refuse_strangers(path)
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except FileNotFoundError as error:
        if path.parent.is_dir():
            return
        why = f"{error.strerror}: {path.parent}"
        raise JournalError(f"The journal {path} cannot be opened: {why}.") from error
    if head and head != _MAGIC:
        raise JournalError(f"{path} is not a journal of this SDK and was not changed.")


def _lock_for_us(held: int, path: Path) -> None:
    try:
        lock(held)
    except BlockingIOError as error:
        raise JournalInUse(
            f"The journal {path} is in use by another process or client: "
            "stop that one first, or use another file."
        ) from error
    except OSError as error:
        raise JournalError(
            f"The journal {path} cannot be locked: {error.strerror}. Keep it on a local disk."
        ) from error
