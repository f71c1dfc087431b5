"""What happens to runs, as it happens."""
