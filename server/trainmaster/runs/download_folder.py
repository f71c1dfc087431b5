"""Where tools may write: below the settings' download root, and not among our own files."""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.errors.errors import UsageError
from trainmaster.home.paths import Home
from trainmaster.home.user_paths import real_path
from trainmaster.settings.settings import read_settings
from trainmaster.sync.workspace import Workspace


def folder_below_downloads(workspace: Workspace, folder: str) -> Path:
    """The path of a folder below the settings' download root, whether it exists or not.

    Raises:
        UsageError: `BAD_ARGUMENT`, it lies elsewhere, or among Trainmaster's own files.
    """
    root = read_settings(workspace.home).download_root(workspace.home)
    target = Path(os.path.normpath(root / folder))
    if not target.is_relative_to(root) or not real_path(target).is_relative_to(real_path(root)):
        raise UsageError(
            "BAD_ARGUMENT",
            f"{folder!r} does not lie below {root}, where files may be brought.",
            f"Name a folder below it, or change `downloads` in {workspace.home.settings}.",
            field="folder",
        )
    if _is_among_our_own(real_path(target), workspace.home):
        raise UsageError(
            "BAD_ARGUMENT",
            f"{target} is where Trainmaster keeps its own files, settings and records.",
            f"Name another folder; by default files come below {workspace.home.downloads}.",
            field="folder",
        )
    return target


def _is_among_our_own(target: Path, home: Home) -> bool:
    """A host chooses the names of its files: none may become the settings that bind tools."""
    root, downloads = real_path(home.root), real_path(home.downloads)
    within = target.is_relative_to(root) and not target.is_relative_to(downloads)
    return within or root.is_relative_to(target)
