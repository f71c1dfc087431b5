"""Containers that training runs in: the engine of this machine, its commands, the inner side."""
