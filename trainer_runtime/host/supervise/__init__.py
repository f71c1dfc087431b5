"""The supervisor: journal, attempts, published state."""
