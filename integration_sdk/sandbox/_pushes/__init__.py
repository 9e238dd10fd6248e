"""Pushes: what each platform takes, and how what was pushed ends."""
