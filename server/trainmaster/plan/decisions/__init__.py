"""The decisions of a plan, a module for each kind. Pure."""
