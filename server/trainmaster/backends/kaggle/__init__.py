"""The Kaggle backend: a run as a series of sessions of one kernel."""
