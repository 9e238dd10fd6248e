"""Asyncio client SDK for the Data Integration Service API.

`Client` is the door; ``integration_sdk.sandbox`` is the service to test
against, ``integration_sdk.testing`` a pytest plugin, ``integration_sdk.webhooks``
receives "Push status changed".

The public names stand in ``_public`` and are imported when one is first used:
pytest loads this package in every run of a project that has it installed, and
must not pay for what that run never uses.
"""

from typing import TYPE_CHECKING, Any

from integration_sdk._version import __version__ as __version__

if TYPE_CHECKING:
    from integration_sdk._public import *
else:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        public = import_module("integration_sdk._public")
        try:
            return getattr(public, name)
        except AttributeError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None

    def __dir__() -> list[str]:
        return [*__getattr__("__all__"), "__version__"]
