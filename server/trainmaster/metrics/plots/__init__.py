"""Curves of runs as pictures: PNG for eyes, characters for terminals."""
