"""What every layer shares: errors, paths, settings, answers, names."""
