"""State that outlives a call, a block or a process: pushes, leases, limits, documents."""
