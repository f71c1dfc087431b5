"""The page for people: served here, read-only, by `trainmaster board`."""
