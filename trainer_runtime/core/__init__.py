"""Pure code that the host and the client share: formats, states, decisions.

Imports nothing outside itself and the standard library, reads no clock and no environment.
"""
