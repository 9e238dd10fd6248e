"""Whom to poll now, singly or by list, and when to wake."""
