"""Folders of links, hard links, pipes, sockets, sparse and oddly named files, among things that may
not travel."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

OUTSIDE = b"of somebody else, outside"
PROTECTED = b"hf_ThisKeyIsOfTheHomeAlone"
_NAMES = (
    *("a.py", "b c.py", "ü.py", "new\nline.py", 'qu"ote.py', "-x", "back\\slash", "~", "%s", "*"),
    *("con", "a" * 200, os.fsdecode(b"\xff\xfe.py"), "\u202eyp.py", ".hidden", "tab\t.py"),
)


class Surroundings:
    """A home with secrets, a user's home with keys, and files outside of `folder`."""

    def __init__(self, home: Path, user: Path, folder: Path) -> None:
        self.folder = folder
        self.outside = folder.parent / "outside"
        self.secret_files = [home / "secrets.env", user / ".ssh" / "id_ed25519", user / ".netrc"]
        for place in self.secret_files:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(b"TOKEN=" + PROTECTED + b"\n")
            place.chmod(0o600)
        for name in ("a.py", "deep/b.py"):
            (self.outside / name).parent.mkdir(parents=True, exist_ok=True)
            (self.outside / name).write_bytes(OUTSIDE)
        folder.mkdir(exist_ok=True)


def grow(around: Surroundings, numbers: random.Random, count: int) -> None:
    """Fill the folder with `count` entries at random."""
    folders = [around.folder]
    for index in range(count):
        parent = numbers.choice(folders)
        place = parent / f"{index}{numbers.choice(_NAMES)}"[:240]
        kind = numbers.choice(_KINDS)
        with suppress(FileExistsError):
            kind(around, place, numbers)
        if place.is_dir() and not place.is_symlink():
            folders.append(place)


def _plain(_around: Surroundings, place: Path, numbers: random.Random) -> None:
    place.write_bytes(numbers.randbytes(numbers.randint(0, 200)).hex().encode())


def _folder(_around: Surroundings, place: Path, _numbers: random.Random) -> None:
    place.mkdir()


def _link_inside(around: Surroundings, place: Path, numbers: random.Random) -> None:
    there = [one for one in around.folder.rglob("*") if not one.is_symlink()]
    if there:
        place.symlink_to(os.path.relpath(numbers.choice(there), place.parent))


def _link_outside(around: Surroundings, place: Path, numbers: random.Random) -> None:
    targets = [around.outside, around.outside / "a.py", *around.secret_files, Path("/dev/zero")]
    target = numbers.choice([*targets, Path("/proc/self/environ"), place, Path("nowhere")])
    place.symlink_to(target if numbers.random() < 0.5 else os.path.relpath(target, place.parent))


def _hard_link(around: Surroundings, place: Path, numbers: random.Random) -> None:
    os.link(numbers.choice(around.secret_files), place)


def _pipe(_around: Surroundings, place: Path, _numbers: random.Random) -> None:
    os.mkfifo(place)


def _socket(_around: Surroundings, place: Path, _numbers: random.Random) -> None:
    with socket.socket(socket.AF_UNIX) as one, suppress(OSError):  # its path may be too long
        one.bind(str(place))


def _sparse(_around: Surroundings, place: Path, _numbers: random.Random) -> None:
    with place.open("wb") as file:
        file.truncate(1 << 20)


def _secret_name(_around: Surroundings, place: Path, numbers: random.Random) -> None:
    folder = place.parent / numbers.choice((".", ".ssh", ".aws"))
    folder.mkdir(exist_ok=True)
    name = numbers.choice((".env", ".netrc", "secrets.env", ".ENV"))
    (folder / name).write_bytes(PROTECTED)


def _chain(around: Surroundings, place: Path, numbers: random.Random) -> None:
    """A link to a link that leads out, or to a secret inside."""
    middle = place.with_name(f"{place.name[:100]}-middle")
    inside = list(around.folder.rglob(".env"))
    middle.symlink_to(numbers.choice([around.outside / "deep", *around.secret_files, *inside]))
    place.symlink_to(middle.name if middle.is_file() else f"{middle.name}/b.py")


_KINDS: tuple[Callable[[Surroundings, Path, random.Random], None], ...] = (
    *(_plain, _plain, _plain, _folder, _folder, _link_inside, _link_outside, _hard_link),
    *(_pipe, _socket, _sparse, _secret_name, _chain),
)
