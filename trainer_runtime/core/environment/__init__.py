"""Requirements, PyTorch builds, GPUs by name."""
