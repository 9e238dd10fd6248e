"""The books of companies: generated records, and lists of them that change."""
