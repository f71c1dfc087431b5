"""The Python environment that trains: found, or built in the cache."""
