"""Repositories whose configuration, hooks and attributes run a command, which leaves a mark."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

# Every key by which git runs a program or reaches for one; {} is a name, %s the command.
KEYS = (
    *("filter.{}.clean", "filter.{}.smudge", "filter.{}.process", "diff.{}.command"),
    *("diff.{}.textconv", "diff.external", "merge.{}.driver", "core.fsmonitor"),
    *("core.sshCommand", "core.pager", "core.editor", "core.askPass", "core.gitProxy"),
    *("core.alternateRefsCommand", "pager.diff", "pager.ls-files", "sequence.editor"),
    *("credential.helper", "gpg.program", "gpg.ssh.program", "interactive.diffFilter"),
    *("remote.origin.uploadpack", "remote.origin.receivepack", "remote.{}.vcs"),
    *("uploadpack.packObjectsHook", "submodule.{}.update", "alias.status", "alias.diff"),
    *("alias.ls-files", "trailer.{}.cmd", "trailer.{}.command", "difftool.{}.cmd"),
    *("mergetool.{}.cmd", "web.browser", "browser.{}.cmd", "man.viewer", "init.templateDir"),
    *("tar.{}.command", "sendemail.sendmailCmd", "rebase.instructionFormat", "hook.{}.command"),
)
NAMES = ("own", "a=b", "x.y", 'q"uote', "sp ace", "back\\slash", "UPPER", "é", "a=b.clean=", "-c")
_WHO = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")


def git(folder: Path, *words: str) -> str:
    """git as its users run it, with none of a person's settings."""
    alone = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(folder), *_WHO, *words]
    environment = {**os.environ, **alone}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()


def new_repository(folder: Path, content: str = "print(1)\n") -> Path:
    """A repository with a committed `train.py`."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "train.py").write_text(content)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def add_submodule(program: Path, source: Path, name: str = "vendor") -> Path:
    """A checked-out submodule; the folder of its own configuration."""
    git(program, "submodule", "add", "-q", str(source), name)
    git(program, "commit", "-q", "-m", "submodule")
    return program / ".git" / "modules" / name


def arm(git_dir: Path, command: str, keys: Sequence[tuple[str, str]]) -> None:
    """Have a repository run `command` for each key and name, for every file, and as every hook."""
    config = ["[core]", f"\thooksPath = {git_dir}/armed"]
    for key, name in keys:
        section, _, rest = key.partition(".")
        inner, _, last = rest.rpartition(".")
        inner = inner.replace("{}", name.replace("\\", "\\\\").replace('"', '\\"'))
        config.append(f'[{section} "{inner}"]' if inner else f"[{section}]")
        config.append(f'\t{last} = "{command}"')
        if section == "filter":
            config.append("\trequired = true")
    config += ["[extensions]", "\tpartialClone = origin", '[remote "origin"]']
    config += [f"\turl = ext::{command}", "\tpromisor = true", "\tpartialclonefilter = blob:none"]
    config += ['[url "ext::sh -c x"]', "\tinsteadOf = https://"]
    (git_dir / "included").write_text("\n".join(config) + "\n")
    with (git_dir / "config").open("a") as file:
        file.write("[core]\n\trepositoryformatversion = 1\n" + "\n".join(config) + "\n")
        file.write("[include]\n\tpath = included\n[extensions]\n\tworktreeConfig = true\n")
    (git_dir / "config.worktree").write_text("\n".join(config) + "\n")
    script = f"#!/bin/sh\n{command}\n"
    for hook in ("post-index-change", "post-checkout", "fsmonitor-watchman", "pre-commit"):
        for folder in (git_dir / "hooks", git_dir / "armed"):
            folder.mkdir(exist_ok=True)
            (folder / hook).write_text(script)
            (folder / hook).chmod(0o755)


def attributes(name: str) -> str:
    """Attributes by which every file takes a driver."""
    plain = "".join(letter for letter in name if letter.isalnum() or letter in "=.\\-") or "own"
    return f"* filter={plain} diff={plain} merge={plain} ident text=auto\n"


def some_keys(numbers: random.Random, count: int) -> list[tuple[str, str]]:
    """Keys at random, each with a name at random."""
    return [(numbers.choice(KEYS), numbers.choice(NAMES)) for _ in range(count)]
