"""What a training script imports: data, checkpoints, events, signals. The only part with torch."""
