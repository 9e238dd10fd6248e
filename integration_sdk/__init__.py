"""Asyncio client SDK for the Data Integration Service API.

Start with `Client`. ``integration_sdk.errors`` has the exceptions, ``integration_sdk.sandbox`` a
service to test against, ``integration_sdk.testing`` a pytest plugin, and
``integration_sdk.webhooks`` receives notifications.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from integration_sdk._version import __version__ as __version__

# pytest imports this package in every project that has it installed, and the command for a mere
# --help. So the table of public names, which brings aiohttp, is imported with the first of them;
# what only a pull needs, with extras that it may use, when it is asked for.
if TYPE_CHECKING:
    from integration_sdk._public import *  # noqa: F403 - that is the table
    from integration_sdk._pull.pull import Pull as Pull
    from integration_sdk._pull.unit import PullProgress as PullProgress
    from integration_sdk._pull.unit import Receipt as Receipt
    from integration_sdk._pull.unit import UnitReceipt as UnitReceipt
else:  # type checkers would take any name for one of these
    _LATE = {"Pull": "pull", "PullProgress": "unit", "Receipt": "unit", "UnitReceipt": "unit"}

    def __getattr__(name: str) -> Any:
        if name == "errors":
            return import_module(f"{__name__}.errors")
        if name in _LATE:
            return getattr(import_module(f"{__name__}._pull.{_LATE[name]}"), name)
        # Any other name in lower case is a module, perhaps one that the table itself imports.
        names = _table() if name == "__all__" or name[0].isupper() else {}
        if name not in names:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return names[name]

    def __dir__() -> list[str]:
        return _table()["__all__"]

    def _table() -> dict[str, Any]:
        table = vars(import_module(f"{__name__}._public"))
        shown = {name: member for name, member in table.items() if name[0].isalpha()}
        return shown | {"__all__": sorted([*shown, *_LATE, "__version__"])}
