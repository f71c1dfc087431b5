"""Memory of a training's step, traced with tensors that have shapes and no data."""
