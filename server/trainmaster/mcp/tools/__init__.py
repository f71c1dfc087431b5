"""The tools that an agent calls: their descriptions are the functions' docstrings."""
