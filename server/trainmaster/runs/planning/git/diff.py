"""Shows what changed since a commit: git compares it with a tree that it is given.

The tree holds the files that travel, as they were opened for that; git reads none of the folder. A
file that stays behind is in no diff, nor is what it was at the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from trainer_runtime.core.files.protected import names_credentials
from trainer_runtime.core.files.regular import read_opened
from trainer_runtime.core.files.unlinked import UnlinkedPaths, unlinked_paths
from trainmaster.runs.planning.git.checkout import Change, Checkout
from trainmaster.transfers.file_set import FileSet, SetFile

MOST_DIFF_BYTES = 1 << 20
_MOST_FILE_BYTES = 2 << 20
_MOST_BYTES = 32 << 20
_CUT = "\n[cut: the files themselves are in code/]\n"
_CHANGED = "refs/changed"
_HEADER = b"commit refs/changed\ncommitter - <-> 0 +0000\ndata 0\nfrom %s\n"


def diff_of(checkout: Checkout, commit: str, changes: Sequence[Change], files: FileSet) -> str:
    """The diff from the commit to the files that travel; cut where it is long.

    Raises:
        GitError: objects are not there, as in a partial or shared clone.
        OSError: a file was replaced while it was read.
    """
    stream = checkout.git.scratch / "changes"
    by_name = {file.name: file for file in files.files}
    with stream.open("wb") as target, unlinked_paths() as paths:
        target.write(_HEADER % commit.encode())
        left = _MOST_BYTES
        for change in changes:
            for piece in _row(checkout, change, by_name, files, paths):
                left -= len(piece)
                target.write(piece)
            if left < 0:
                break
    git, git_dir = checkout.git, checkout.git_dir
    git.run(git_dir, "fast-import", "--quiet", "--force", stdin=stream)
    prefixes = (f"--src-prefix=a/{checkout.prefix}", f"--dst-prefix=b/{checkout.prefix}")
    options = ("-p", "-r", "-M", "--no-ext-diff", "--no-textconv", "--no-color", *prefixes)
    words = ("diff-tree", *options, commit, _CHANGED)
    text = git.run(git_dir, *words, most_bytes=MOST_DIFF_BYTES + 1).decode(errors="replace")
    return text if len(text) <= MOST_DIFF_BYTES else text[:MOST_DIFF_BYTES] + _CUT


def _row(
    checkout: Checkout,
    change: Change,
    by_name: Mapping[str, SetFile],
    files: FileSet,
    paths: UnlinkedPaths,
) -> Iterator[bytes]:
    """A change as `git fast-import` reads it; nothing for what stays behind."""
    name = f"{checkout.prefix}{change.name}"
    path = _quoted(f"{checkout.above}{change.name}")
    if change.is_deleted:
        in_home = any(name.startswith(f"{home}/") for home in files.homes)
        if not names_credentials(PurePath(name)) and not in_home:
            yield b"D %s\n" % path
        return
    file = by_name.get(name)
    if file is None or file.real != f"{files.root}/{name}":
        return
    data = read_opened(file.open(paths), _MOST_FILE_BYTES)
    if len(data) > _MOST_FILE_BYTES:
        data = f"[{file.size_bytes} bytes, too many for a diff]\n".encode()
    mode = b"100755" if file.is_executable else b"100644"
    yield b"M %s inline %s\ndata %d\n%s\n" % (mode, path, len(data), data)


def _quoted(path: str) -> bytes:
    for letter, quoted in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        path = path.replace(letter, quoted)
    return b'"%s"' % path.encode(errors="surrogateescape")
