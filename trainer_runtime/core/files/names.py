"""Which file names of another machine may become names here: one predicate for every way in.

SFTP's listings, Kaggle's outputs and Trainmaster's own listings pass it before a path is built.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# `.NAME.part` has to fit into 255 bytes.
LONGEST_NAME_BYTES = 240
LONGEST_PATH_BYTES = 2048
DEEPEST = 32
# Control characters, separators of other systems, bidirectional marks, surrogates, line ends.
_UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\\\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
# A repository's own files, by the names that some disk takes for `.git`.
_GIT = re.compile(r"(?:\.git|git~[0-9]+)[ .]*(?::.*)?", re.IGNORECASE | re.DOTALL)
# Devices where the disk is shared with Windows, whatever follows a dot.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


def why_unsafe(path: str) -> str | None:
    """Why a relative path can't be used; None where it can.

    Refused are absolute paths, `.` and `..`, empty parts, unprintable characters, names of devices,
    `.git`, and what is too long or too deep for a file system.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") or _UNSAFE.search(part) for part in parts):
        return "its name is not safe"
    if any(_DEVICE.fullmatch(part) for part in parts):
        return "its name is that of a device"
    if git_folder(path) is not None:
        return "git's own files are not taken from other machines"
    if any(len(part.encode()) > LONGEST_NAME_BYTES for part in parts):
        return "its name is too long"
    if len(parts) > DEEPEST or len(path.encode()) > LONGEST_PATH_BYTES:
        return "its path is too long"
    return None


def git_folder(path: str) -> str | None:
    """The part of a path up to a repository's own folder, or the file in its place; None where it
    leads through none."""
    parts = path.split("/")
    for end, part in enumerate(parts, start=1):
        if _GIT.fullmatch(part):
            return "/".join(parts[:end])
    return None


class TakenNames:
    """The paths of one listing, to find those that some file systems take for the same."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def why_taken(self, path: str) -> str | None:
        """Why a path can't lie beside the earlier ones; None where it can, and then counts.

        Names that differ only in case or in the form of their letters are the same on other disks;
        a file can't be the folder of another one.
        """
        folders = ["/".join(path.split("/")[:end]) for end in range(1, path.count("/") + 1)]
        taken = self._files.get(_folded(path), path) != path
        taken |= _folded(path) in self._folders
        for folder in folders:
            taken |= _folded(folder) in self._files
            taken |= self._folders.get(_folded(folder), folder) != folder
        if taken:
            return "another name differs from it only in case or form"
        self._files[_folded(path)] = path
        self._folders |= {_folded(folder): folder for folder in folders}
        return None


def safe_names(paths: Iterable[str], most: int) -> list[str]:
    """The first `most` of a listing that can be used together, in order."""
    taken = TakenNames()
    names: list[str] = []
    for path in paths:
        if len(names) == most:
            break
        if why_unsafe(path) is None and taken.why_taken(path) is None:
            names.append(path)
    return names


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKC", path).casefold())
