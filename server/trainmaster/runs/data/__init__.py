"""What data is, before any plan: its files, rows and texts, and what can be trained on it."""
