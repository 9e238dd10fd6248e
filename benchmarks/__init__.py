"""Benchmarks: questions about speed, size and counts, answered by one command.

    python -m benchmarks                      list the questions
    python -m benchmarks all --check          ask all; fails if a goal is missed
    python -m benchmarks streaming --quick    one question, smaller sizes
    python -m benchmarks --readme             write the latest answers into docs/figures.md

Alternatives to the SDK answer the same question in the same run, taking turns with it.
"""
