"""One small script per contender, each written as its users would write it.

A script runs in a process of its own, some in an environment of their own, and prints one line
of JSON (`_frame`). So this package imports only the standard library.
"""
