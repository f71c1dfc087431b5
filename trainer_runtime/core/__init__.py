"""Pure code that the box and the operator's side share: formats, states, decisions.

Imports nothing outside itself and the standard library, reads no clock and no environment.
"""
