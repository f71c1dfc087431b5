"""The files of a run's folder, and how they are read and written."""
