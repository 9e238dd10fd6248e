"""``python -m integration_sdk``, and the command ``integration-sdk``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say what it takes to have one."""
    try:
        from integration_sdk.cli import app  # noqa: PLC0415 (its packages are an extra)
    except ModuleNotFoundError as missing:
        if missing.name not in {"cyclopts", "rich"}:
            raise
        sys.exit("The command line needs two more packages: pip install 'integration-sdk[cli]'")
    app()


if __name__ == "__main__":
    main()
