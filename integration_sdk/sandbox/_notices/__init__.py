"""Notifications of the ends of pushes."""
