"""Loads a cluster's environment modules once in a login shell, and keeps the changed variables."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer_runtime.host.environment.installers import EnvironmentUnusableError
from trainer_runtime.host.files.resolved_environment import Changes
from trainer_runtime.host.processes.commands import Report, follow

# $1 and $2: files for the environment before and after. Modules write to stdout as they like, and
# some versions of `module` fail with exit code 0, so what they say counts as well.
_SCRIPT = """
before=$1 after=$2
shift 2
for init in "${MODULESHOME:-/nowhere}/init/bash" /etc/profile.d/modules.sh \\
    /etc/profile.d/lmod.sh /usr/share/modules/init/bash /usr/share/lmod/lmod/init/bash; do
    type module >/dev/null 2>&1 && break
    [ -r "$init" ] && . "$init"
done
if ! type module >/dev/null 2>&1; then
    echo "this machine has no 'module' command"
    exit 90
fi
env -0 > "$before"
for name in "$@"; do
    said=$(module load "$name" 2>&1) || { echo "$said"; echo "module load $name failed"; exit 91; }
    module load "$name" || exit 91
    case $said in
        *ERROR* | *"Unable to locate"* | *"are unknown"*)
            echo "$said"; echo "module load $name failed"; exit 91 ;;
    esac
done
env -0 > "$after"
"""
# The shell's own, and what would make every later shell run code.
_LEFT_OUT = re.compile(r"(SHLVL|PWD|OLDPWD|_|BASH_FUNC_.*|BASH_ENV|ENV|PROMPT_COMMAND)\Z")


def load_modules(
    names: Sequence[str], environment: Mapping[str, str], folder: Path, report: Report
) -> Changes:
    """What loading these modules changes in the environment; None for what it removes.

    Raises:
        EnvironmentUnusableError: there is no `module` or no such module, or loading it fails.
    """
    with tempfile.TemporaryDirectory(prefix="trainmaster-") as place:
        before, after = Path(place) / "before", Path(place) / "after"
        command = ["bash", "-lc", _SCRIPT, "bash", str(before), str(after), *names]
        try:
            ended = follow(command, report, label="modules", folder=folder, environment=environment)
        except OSError as error:
            raise EnvironmentUnusableError(f"modules need bash: {error.strerror}") from None
        if ended.code != 0:
            reason = "; ".join(ended.lines[-3:]) or f"exit code {ended.code}"
            raise EnvironmentUnusableError(f"environment.modules: {reason}")
        return _changes(_read(before), _read(after))


def _read(path: Path) -> dict[str, str]:
    entries = path.read_bytes().decode(errors="surrogateescape").split("\0")
    pairs = [entry.partition("=") for entry in entries if "=" in entry]
    return {name: value for name, _, value in pairs if not _LEFT_OUT.match(name)}


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> Changes:
    changes: Changes = {name: value for name, value in after.items() if before.get(name) != value}
    changes.update({name: None for name in before if name not in after})
    return changes
