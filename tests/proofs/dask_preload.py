"""Run by workers first: their leases end soon, so that no test waits for long."""

from integration_sdk._store import postgres

postgres.LEASE = 1.0  # type: ignore[misc]
