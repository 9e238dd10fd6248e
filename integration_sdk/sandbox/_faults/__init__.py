"""Faults on command, by rules that say when each applies."""
