from integration_sdk._session import BeforeSending, CallInfo, CallOptions, SessionStats  # moved: import from integration_sdk._session
__all__ = ["BeforeSending", "CallInfo", "CallOptions", "SessionStats"]
