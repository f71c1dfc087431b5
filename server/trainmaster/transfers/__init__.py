"""Bytes to and from hosts: data, folders, wheels, checkpoints."""
