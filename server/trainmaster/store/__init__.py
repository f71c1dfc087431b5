"""What is kept in the home: control.db, metrics.db, the mirror, secrets."""
