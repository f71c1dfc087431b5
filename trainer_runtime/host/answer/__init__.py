"""Commands that answer the client: follow, list, check, verify."""
