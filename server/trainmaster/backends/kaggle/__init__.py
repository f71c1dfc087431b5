"""Kaggle kernels as a place where runs stay, session after session."""
