"""Nothing outside of a folder, and nothing that is protected, is listed, shown or sent from it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.attack.cases import attack_count, attack_random
from support.attack.git_configurations import git, new_repository
from support.attack.path_sets import OUTSIDE, PROTECTED, Surroundings, grow

from trainer_runtime.core.files.unlinked import read_unlinked
from trainmaster.backends.hosts.tree_files import Contents, TreeFile, files_of_folder
from trainmaster.errors.errors import PlanError
from trainmaster.runs.planning.code_folder import read_code
from trainmaster.runs.planning.probe_code import masked_diff
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.file_set import FileSet, file_set
from trainmaster.transfers.upload_folder import files_at

pytestmark = pytest.mark.attack

_LIMIT = 1 << 30


@pytest.fixture
def around(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return Surroundings(workspace.home.root, tmp_path / "user", tmp_path / "program")


def sent(files: FileSet | list[TreeFile]) -> Iterator[bytes]:
    """What an upload of the files reads, as far as it comes."""
    for file in files if isinstance(files, list) else files.to_send():
        with suppress(PlanError, OSError):
            contents = Contents(file)
            try:
                yield b"".join(iter(contents.read, b""))
            finally:
                contents.close()


def assert_clean(parts: Iterator[bytes]) -> None:
    for part in parts:
        assert OUTSIDE not in part
        assert PROTECTED not in part


def test_generated_folders_send_only_what_lies_in_them(
    workspace: Workspace, around: Surroundings
) -> None:
    numbers = attack_random("path sets")
    for _ in range(attack_count(15)):
        shutil.rmtree(around.folder)
        around.folder.mkdir()
        grow(around, numbers, numbers.randint(5, 80))
        files = file_set(around.folder, workspace.home)
        assert_clean(sent(files))
        assert all(file.real.startswith(f"{files.root}/") for file in files.files)
        if numbers.random() < 0.5:
            git(around.folder, "init", "-q")
            (around.folder / ".gitignore").write_text("*9*\n")
            git(around.folder, "add", "-f", "-A")
            git(around.folder, "commit", "-q", "-m", "all", "--allow-empty")
            for place in around.folder.rglob("*.py"):
                if place.is_file() and not place.is_symlink() and place.stat().st_nlink == 1:
                    place.write_text("changed\n")
        found = read_code(around.folder, _LIMIT, workspace.home)
        assert_clean(sent(found.there))
        assert_clean(iter([found.diff.encode(), found.listing.encode(errors="replace")]))


def test_a_hard_link_to_the_homes_secrets_or_the_users_key_stays(
    workspace: Workspace, around: Surroundings
) -> None:
    (around.folder / "train.py").write_text("print(1)\n")
    for index, place in enumerate(around.secret_files):
        os.link(place, around.folder / f"data-{index}.txt")
    found = read_code(around.folder, _LIMIT, workspace.home)
    assert [file.name for file in found.files] == ["train.py"]
    assert found.left == ["3 files with secrets (data-0.txt, data-1.txt, data-2.txt)"]


def test_a_link_inside_that_leads_to_a_secret_file_stays(
    workspace: Workspace, around: Surroundings
) -> None:
    (around.folder / ".env").write_bytes(PROTECTED)
    (around.folder / "notes.txt").symlink_to(".env")
    assert read_code(around.folder, _LIMIT, workspace.home).files == []


@pytest.mark.parametrize("part", ["lib", "lib/deep"])
def test_a_folder_that_became_a_link_brings_nothing_from_outside(
    workspace: Workspace, around: Surroundings, part: str
) -> None:
    inside = around.folder / "lib" / "deep"
    inside.mkdir(parents=True)
    (inside / "b.py").write_bytes(b"x" * len(OUTSIDE))
    listed = file_set(around.folder, workspace.home)
    models = files_at(around.folder, ["lib/deep/b.py"], workspace.home)
    whole = files_of_folder(around.folder)
    shutil.copytree(around.outside, around.outside / "lib")
    times = (inside / "b.py").stat()
    shutil.rmtree(around.folder / part)
    target = around.outside if part == "lib" else around.outside / "deep"
    (around.folder / part).symlink_to(target)
    os.utime(around.outside / "deep" / "b.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    for files in (listed, models, whole):
        assert list(sent(files)) == []


@pytest.mark.parametrize("part", ["lib", "lib/deep"])
def test_no_name_leads_through_a_folder_that_is_a_link_to_outside(
    workspace: Workspace, around: Surroundings, part: str
) -> None:
    """Git names what it has on record, whatever the folders on the way are by now."""
    shutil.rmtree(around.folder)
    program, name = new_repository(around.folder), "lib/deep/b.py"
    (program / "lib" / "deep").mkdir(parents=True)
    (program / name).write_text("tracked\n")
    git(program, "add", ".")
    git(program, "commit", "-q", "-m", "two")
    shutil.copytree(around.outside, around.outside / "lib")
    shutil.rmtree(program / part)
    (program / part).symlink_to(around.outside if part == "lib" else around.outside / "deep")
    assert (program / name).read_bytes() == OUTSIDE
    assert file_set(program, workspace.home, [name]).files == []
    code = read_code(program, _LIMIT, workspace.home)
    assert [file.name for file in code.files] == ["train.py"]
    assert "-tracked" in code.diff and OUTSIDE.decode() not in code.diff
    with pytest.raises(OSError):  # without an inode that was listed
        read_unlinked(program / name)


def test_a_folder_that_is_swapped_for_a_link_all_the_while_brings_nothing(
    workspace: Workspace, around: Surroundings
) -> None:
    lib, kept = around.folder / "deep", around.folder.parent / "kept"
    lib.mkdir()
    (lib / "b.py").write_bytes(b"of this folder")
    outside = hashlib.sha256(OUTSIDE).hexdigest()
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            lib.rename(kept)
            lib.symlink_to(around.outside / "deep")
            lib.unlink()
            kept.rename(lib)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(attack_count(100)):
            assert_clean(sent(file_set(around.folder, workspace.home)))
            with suppress(PlanError):
                files = read_code(around.folder, _LIMIT, workspace.home).files
                assert outside not in [file.sha256 for file in files]
    finally:
        over.set()
        swapping.join()


def test_a_secret_that_takes_the_place_of_a_listed_file_stays(
    workspace: Workspace, around: Surroundings
) -> None:
    """It has the length and the time of the one that was listed."""
    secret, place = around.secret_files[1], around.folder / "data.txt"
    place.write_bytes(b"x" * secret.stat().st_size)
    os.utime(place, ns=(secret.stat().st_atime_ns, secret.stat().st_mtime_ns))
    listed = file_set(around.folder, workspace.home).to_send()
    models = files_at(around.folder, ["data.txt"], workspace.home)
    place.unlink()
    os.link(secret, place)
    for files in (listed, models):
        assert list(sent(files)) == []


_BOUND = """
import sys
from pathlib import Path
from trainmaster.transfers.file_set import file_set
from trainmaster.home.paths import Home
print([file.name for file in file_set(Path(sys.argv[1]), Home(Path(sys.argv[2]))).files])
"""


def test_a_secret_that_is_mounted_under_another_name_stays(
    workspace: Workspace, around: Surroundings
) -> None:
    """A mount does not count as a further name of a file."""
    mounts = []
    for number, secret in enumerate(around.secret_files):
        place = around.folder / f"data-{number}.txt"
        place.touch()
        mounts.append(f"mount --bind '{secret}' '{place}'")
    (around.folder / "train.py").touch()
    script = " && ".join([*mounts, 'exec "$@"'])
    words = [sys.executable, "-c", _BOUND, str(around.folder), str(workspace.home.root)]
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "-", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if "unshare failed" in done.stderr or "mount: " in done.stderr:
        pytest.skip("the kernel allows this account no mounts")
    assert done.stdout == "['train.py']\n", done.stderr


def test_the_diff_holds_nothing_of_a_file_that_stays(
    workspace: Workspace, around: Surroundings
) -> None:
    shutil.rmtree(around.folder)
    program = new_repository(around.folder)
    (program / ".env").write_bytes(b"TOKEN=first-value\n")
    (program / ".ssh").mkdir()
    (program / ".ssh" / "key").write_text("second-value\n")
    (program / "linked.txt").write_text("plain\n")
    git(program, "add", "-f", ".")
    git(program, "commit", "-q", "-m", "secrets")
    (program / ".env").write_bytes(b"TOKEN=third-value\n")
    (program / ".ssh" / "key").unlink()
    (program / "linked.txt").unlink()
    os.link(around.secret_files[0], program / "linked.txt")
    (program / "train.py").write_text("print(2)\n")
    diff = read_code(program, _LIMIT, workspace.home).diff
    assert "+print(2)" in diff
    assert not any(value in diff for value in ("first", "second", "third", PROTECTED.decode()))
    git(program, "rm", "-q", "--cached", ".env")
    (program / ".env").rename(program / "settings.txt")
    assert "first" not in read_code(program, _LIMIT, workspace.home).diff


def test_what_has_the_form_of_a_secret_is_masked_in_a_diff(
    workspace: Workspace, around: Surroundings
) -> None:
    around.secret_files[0].write_text("OWN=value-of-the-home-9\n")
    diff = """\
+api_key = "0123456789abcdef"
+password: 'correct-horse'
+WANDB_API_KEY=abcdefabcdef
+login("hf_abcdefghijklmnopqrstuvwx")
+url = "https://me:topsecret@example.org"
+x = "value-of-the-home-9"
+-----BEGIN OPENSSH PRIVATE KEY-----
+b3BlbnNzaC1rZXktdjEAAAAABG5vbmU
+-----END OPENSSH PRIVATE KEY-----
@@ -10,2 +10,3 @@
-QyNTUxOQAAACBmlZGWmHxPZ0FwbTBrZXlib2R5MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1
+    password: correct-donkey
+os.environ['HF_TOKEN'] = 'abcd1234efgh'
+aws_secret_access_key = wJalrXUtnFEMI/K7MDENG
+token: s0me-token-of-theirs
+passwd = '''triple-quoted'''
+token: TokenOfSomeKind
+tokenizer = "gpt2-medium-long"
+key = os.environ["API_KEY"]
"""
    more = ("QyNTU", "donkey", "abcd1234", "wJalr", "s0me", "triple")
    masked = masked_diff(workspace.home, (), {}, diff)
    for value in (
        "0123456789",
        "horse",
        "abcdefabcdef",
        "hf_",
        "topsecret",
        "home-9",
        "b3Blb",
        *more,
    ):
        assert value not in masked
    assert "token: TokenOfSomeKind" in masked
    assert 'tokenizer = "gpt2-medium-long"\n+key = os.environ["API_KEY"]' in masked
    assert len(masked) == len(diff)
