"""One small script per contender, each going about its work as its users would.

A script runs in a process of its own, some of them in an environment of their own, and
prints one line of JSON (`_frame`). So this package imports nothing but the standard library.
"""
