"""What a run is made of, for other tools."""
