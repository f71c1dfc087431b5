"""How everything stands, and what comes first."""
