"""Benchmarks: questions about speed, size and counts, asked again by one command.

    python -m benchmarks                      what can be asked
    python -m benchmarks all --check          ask everything; fails where a goal is missed
    python -m benchmarks streaming --quick    one question, smaller sizes
    python -m benchmarks --readme             write what was found last into README

What a user would pick instead answers the same question in the same run, turn by turn.
"""
