"""What to fetch next, what to hand out next, and what a page holds."""
