from integration_sdk._session import Source, hide  # moved: import from integration_sdk._session
__all__ = ["Source", "hide"]
