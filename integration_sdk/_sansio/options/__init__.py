"""Push options: a record against them, as JSON Schema, as a form."""
