"""The files of the home: control.db, metrics.db, the mirror, secrets."""
