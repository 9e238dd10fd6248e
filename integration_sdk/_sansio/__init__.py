"""The rules: no event loop, no socket, no clock, no chance; those are arguments."""
