"""A run as a Kaggle kernel's session."""
