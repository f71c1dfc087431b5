"""The fields of the spec: what to train, as the user writes it."""
