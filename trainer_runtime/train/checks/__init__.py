"""Checks of PyTorch and frameworks, run as programs."""
