"""One kept copy of the runtime for all homes of a session.

Each new home writes and compiles its copy, durably: hundreds of files, which cost a second. The
names in the session's folder are those that the homes themselves would use.
"""

from __future__ import annotations

from pathlib import Path


class KeptRuntimes:
    """The copies that a session of tests keeps, in a folder; none before it has one."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    def lend(self, *roots: Path) -> None:
        """Let the hosts with these root folders take theirs from there, unless they have some."""
        for root in roots:
            place = root / "cache/runtime"
            if self.folder is None or place.exists() or (root.exists() and not root.is_dir()):
                continue
            for folder in (root, place.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # as the host makes them
            place.symlink_to(self.folder)


kept_runtimes = KeptRuntimes()
