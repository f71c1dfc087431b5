"""The status page and its risks."""
