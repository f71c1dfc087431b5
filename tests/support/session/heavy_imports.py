"""What collecting the tests imports: each worker pays for it, whatever its tests need."""

from __future__ import annotations

import sys

# Each costs one to two seconds; the tests that need one import it themselves.
_HEAVY = ("datasets", "jsonschema", "lightning", "matplotlib", "transformers")
imported: list[str] = []


def note_imported() -> None:
    """Note which are there, before any test has run."""
    imported[:] = [name for name in _HEAVY if name in sys.modules]
