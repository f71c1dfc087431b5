"""Reads hosts into the mirror and the database, and folds runs from it; changes no host."""
