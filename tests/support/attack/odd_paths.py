"""Paths that no command can use as they are: each is made in a folder, and named."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def make_odd_paths(folder: Path) -> dict[str, str]:
    """What is wrong with each path, and the path as somebody would type it."""
    (folder / "loop").symlink_to("loop")
    (folder / "one").symlink_to("two")
    (folder / "two").symlink_to("one")
    (folder / "dangling").symlink_to("nowhere/at/all")
    (folder / "file").write_text("a file\n")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "linked-pipe").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(folder / "socket"))
    closed = folder / "closed"
    (closed / "inside").mkdir(parents=True)
    closed.chmod(0)
    at = str(folder)
    return {
        "a link to itself": f"{at}/loop",
        "below a link to itself": f"{at}/loop/inside.yaml",
        "two links in a loop": f"{at}/one",
        "a link to nothing": f"{at}/dangling",
        "below a file": f"{at}/file/inside",
        "a folder": f"{at}/folder",
        "a pipe": f"{at}/pipe",
        "a link to a pipe": f"{at}/linked-pipe",
        "a socket": f"{at}/socket",
        "a device": "/dev/full",
        "an endless device": "/dev/zero",
        "in a closed folder": f"{at}/closed/inside/file",
        "a long name": f"{at}/{'n' * 300}",
        "a long path": f"{at}/{'p/' * 2500}x",
        "a zero byte": f"{at}/a\0b",
        "not UTF-8": f"{at}/\udcff",
        "control codes": f"{at}/\x1b[31m\n",
        "another user's home": "~no-such-user-here/file",
        "nothing": "",
        "a space": " ",
        "the root": "/",
        "slashes": "//",
        "climbing": f"{at}/../../../../../../../../../dev/null/x",
        "a dash": "-",
    }
