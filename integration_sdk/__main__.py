"""``python -m integration_sdk``, and the command ``integration-sdk``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say how to install what it needs."""
    try:
        from integration_sdk.cli import main as command  # noqa: PLC0415 (its packages are an extra)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in {"cyclopts", "rich"}:
            raise
        hint = "The command line needs two more packages: pip install 'integration-sdk[cli]'\n"
        sys.stderr.write(hint)
        sys.exit(2)
    except KeyboardInterrupt:  # the packages take half a second
        sys.stderr.write("integration-sdk: interrupted\n")
        sys.exit(130)
    sys.exit(command())


if __name__ == "__main__":
    main()
