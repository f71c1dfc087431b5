"""Resumes: what changes, from which checkpoint, on which hosts."""
