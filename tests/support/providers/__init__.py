"""Stand-ins of the providers that rent out machines: real HTTP on loopback, and instances to reach.

They follow the providers' own descriptions of their APIs. These belong to the providers and are not
kept here: where `TRAINMASTER_API_DESCRIPTIONS` names a folder with them (see `described.py`), every
request, and every answer of a stand-in's, is checked against them.
"""
