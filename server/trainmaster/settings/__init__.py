"""The home's settings and policy: what they may be, and where they come from."""
