"""Installs packages into a virtual environment: by pip, or by uv where pip is missing.

pip reads its indexes from its configuration files and from PIP_… variables; uv is given the
same by UV_… variables: never on a command line, where everybody could read the passwords that
such addresses may hold.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainer_runtime.core.environment.requirements import name_of
from trainer_runtime.core.frameworks.packages import BUILD_TOOLS, BUILT_IN_PLACE
from trainer_runtime.host.environment.interpreters import Interpreter
from trainer_runtime.host.processes.commands import Ended, Report, follow

_SECTIONS = ("global", "install")
_TRUE = ("1", "true", "yes", "on", "y", "t")
# The first pip that installs into an environment other than its own (`pip --python`).
_FIRST_PIP_FOR_OTHERS = (22, 3)
_UV_PLACES = ("~/.local/bin/uv", "~/.cargo/bin/uv")
# Variables by which pip would install elsewhere than its arguments say.
_ELSEWHERE = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PYTHONHOME", "UV_PYTHON")
_NETWORK = re.compile(
    r"Retrying \(Retry|NewConnectionError|ConnectTimeout|Read ?timed ?out|ReadTimeout|"
    r"Temporary failure in name resolution|Name or service not known|Connection (?:refused|reset)|"
    r"Network is unreachable|\b5\d\d Server Error|IncompleteRead|Connection broken|"
    r"error sending request|dns error|operation timed out|Could not connect",
    re.IGNORECASE,
)
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|os error 28", re.IGNORECASE)
_NO_WHEEL = re.compile(
    r"No matching distribution found for (?P<pip>[^\s,;(]+)|"
    r"Because (?P<uv>[A-Za-z0-9._-]+)\S* (?:has no|was not found)|"
    r"there (?:is|are) no versions? of (?P<none>[A-Za-z0-9._-]+)"
)
_CONFLICT = re.compile(
    r"ResolutionImpossible|conflicting dependencies|The conflict is caused by|are unsatisfiable"
)
# What is preferred has no wheel here: pip and uv call that a conflict with what is required.
_NO_BUILD = re.compile(f"{_NO_WHEEL.pattern}|{_CONFLICT.pattern}")
_OTHER_DIGEST = re.compile(r"DO NOT MATCH THE HASHES|[Hh]ash mismatch")
_WHICH_DIFFERS = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*==[0-9][^\s;`]*)")
_QUOTED_LINES = 3
_QUOTED_LENGTH = 600


class EnvironmentUnusableError(Exception):
    """The environment can't be made as the config asks; a retry would end the same way."""


class EnvironmentUnavailableError(Exception):
    """The environment could not be made for a reason that may pass, such as the network's."""


@dataclass(frozen=True, slots=True)
class Installer:
    """`pip` or `uv`, and how it is called; `brings_pip`: the venv is made with its own pip."""

    kind: str
    command: tuple[str, ...]
    brings_pip: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be installed into `venv`: files of requirements, and what holds versions.

    `held` names packages of an environment beneath that stay as they are; `wheels` is the one
    folder that wheels may come from, None for the usual indexes. `preferred`: more constraints,
    which are let go of where nothing meets them. `hashed`: the files of requirements are complete
    and hold digests, and nothing else is installed. `record`: where pip lists what it installed.
    """

    venv: Path
    requirements: Sequence[Path]
    constraints: Path | None
    held: Sequence[str]
    wheels: str | None
    preferred: Path | None = None
    hashed: bool = False
    record: Path | None = None


def find_installer(
    base: Interpreter, others: Sequence[Interpreter], environment: Mapping[str, str]
) -> Installer | None:
    """The installer for a venv of `base`; None if there is none."""
    if base.venv:
        for python in (base, *others):
            if python.pip is not None and python.pip >= _FIRST_PIP_FOR_OTHERS:
                return Installer("pip", (python.python, "-m", "pip"))
        if base.ensurepip:
            return Installer("pip", (), brings_pip=True)
    nearby = [str(Path(base.python).with_name("uv")), *map(os.path.expanduser, _UV_PLACES)]
    for uv in [shutil.which("uv", path=environment.get("PATH")), *nearby]:
        if uv is not None and os.access(uv, os.X_OK):
            return Installer("uv", (uv,))
    return None


def install(
    installer: Installer,
    wanted: Wanted,
    report: Report,
    *,
    environment: Mapping[str, str],
    lock: int,
) -> None:
    """Install what is wanted; wheels alone at first, then what can be built as well.

    `lock` is inherited, so that nobody removes the environment under an installer that outlives
    the preparation.

    Raises:
        EnvironmentUnusableError: something has no wheel and can't be built, or versions conflict,
            or a file has not the digest that it must have.
        EnvironmentUnavailableError: the network failed.
    """
    variables = _variables(installer, environment, wanted)

    def attempt(only_wheels: bool, preferred: Path | None = None) -> Ended:
        command = _command(installer, wanted, variables, only_wheels=only_wheels)
        if preferred is not None:
            command += ["--constraint", str(preferred)]
        ended = follow(
            command,
            report,
            label=installer.kind,
            folder=wanted.venv,
            environment=variables,
            inherited=[lock],
        )
        if preferred is None or not _NO_BUILD.search("\n".join(ended.lines)):
            _refuse_what_stays(ended, wanted)
        return ended

    if wanted.preferred is not None:
        if attempt(only_wheels=True, preferred=wanted.preferred).code == 0:
            return
        names = ", ".join(wanted.preferred.read_text().split())
        report(f"environment: {names} can't be had from these indexes; taking the usual build")
    first = attempt(only_wheels=True)
    if first.code == 0:
        return
    if wanted.wheels is not None or wanted.hashed:
        raise EnvironmentUnusableError(_failure(first, wanted))
    report("environment: not everything has a wheel; trying to build what has none")
    second = attempt(only_wheels=False)
    if second.code != 0:
        raise EnvironmentUnusableError(f"{_failure(first, wanted)}: {second.last_words}")


def build_in_place(
    installer: Installer,
    wanted: Wanted,
    lines: Sequence[str],
    report: Report,
    *,
    environment: Mapping[str, str],
    lock: int,
) -> None:
    """Install what mostly has no wheel; then it is built with the environment's own PyTorch.

    Raises:
        EnvironmentUnusableError, EnvironmentUnavailableError: as `install` does.
    """
    tools, sources = wanted.venv / "build-tools.txt", wanted.venv / "built-in-place.txt"
    tools.write_text("".join(f"{name}\n" for name in BUILD_TOOLS))
    sources.write_text("".join(f"{line}\n" for line in lines))
    wanted = replace(wanted, preferred=None, requirements=[sources])
    variables = _variables(installer, environment, wanted)
    for line in lines:
        variables |= BUILT_IN_PLACE[name_of(line) or ""]

    def attempt(only_wheels: bool) -> Ended:
        command = _command(installer, wanted, variables, only_wheels=only_wheels)
        return follow(
            command if only_wheels else [*command, "--no-build-isolation"],
            report,
            label=installer.kind,
            folder=wanted.venv,
            environment=variables,
            inherited=[lock],
        )

    if attempt(only_wheels=True).code == 0:
        return
    report(f"environment: building {', '.join(line.split()[0] for line in lines)}")
    if not wanted.hashed:  # else they are among what the lock has brought
        build_tools = replace(wanted, requirements=[tools])
        install(installer, build_tools, report, environment=environment, lock=lock)
    built = attempt(only_wheels=False)
    _refuse_what_stays(built, wanted)
    if built.code != 0:
        raise EnvironmentUnusableError(_failure(built, wanted))


def uninstall(
    installer: Installer,
    venv: Path,
    names: Sequence[str],
    report: Report,
    *,
    environment: Mapping[str, str],
) -> None:
    """Take packages out of an environment; whether that helped shows when it is probed again."""
    wanted = Wanted(venv, [], None, [], None)
    variables = _variables(installer, environment, wanted)
    command = [*_called(installer, venv, "uninstall"), *names]
    if installer.kind == "pip":
        command.append("--yes")
    follow(command, report, label=installer.kind, folder=venv, environment=variables)


def _command(
    installer: Installer, wanted: Wanted, environment: Mapping[str, str], *, only_wheels: bool
) -> list[str]:
    command = _called(installer, wanted.venv, "install")
    if installer.kind == "uv":
        command += uv_options(pip_settings(environment, str(wanted.venv)))
        if wanted.held:
            command += ["--overrides", str(_never(wanted))]
    if wanted.wheels is not None:
        command += ["--no-index", "--find-links", wanted.wheels]
    if only_wheels:
        command += ["--only-binary", ":all:"]
    if wanted.hashed:
        command += ["--no-deps", "--require-hashes"]
    if wanted.record is not None and installer.kind == "pip":
        command += ["--report", str(wanted.record)]
    if wanted.constraints is not None and not (installer.kind == "uv" and wanted.held):
        command += ["--constraint", str(wanted.constraints)]
    for file in wanted.requirements:
        command += ["--requirement", str(file)]
    return command


def _called(installer: Installer, venv: Path, verb: str) -> list[str]:
    python = str(venv / "bin" / "python")
    if installer.kind == "uv":
        return [*installer.command, "pip", verb, "--python", python]
    if installer.brings_pip:
        return [python, "-m", "pip", verb]
    return [*installer.command, "--python", python, verb]


def _never(wanted: Wanted) -> Path:
    """uv sees nothing of the environment beneath: what is held there is never to be installed."""
    path = wanted.venv / "overrides.txt"
    path.write_text("".join(f"{name} ; python_version < '3'\n" for name in wanted.held))
    return path


def _variables(
    installer: Installer, environment: Mapping[str, str], wanted: Wanted
) -> dict[str, str]:
    variables = {name: value for name, value in environment.items() if name not in _ELSEWHERE}
    if installer.kind == "uv":
        settings = pip_settings(environment, str(wanted.venv))
        from_pip = uv_variables(settings)
        if wanted.hashed:  # all is pinned, and uv refuses a constraint without digests beside it
            from_pip.pop("UV_CONSTRAINT", None)
        # What was meant for uv in the first place counts more than what was meant for pip.
        return {**from_pip, "UV_NO_PROGRESS": "1", "NO_COLOR": "1", **variables}
    quiet = {
        "PIP_PROGRESS_BAR": "off",
        "PIP_NO_INPUT": "1",
        "PIP_NO_COLOR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_USER": "0",
        "PIP_REQUIRE_VIRTUALENV": "0",
    }
    return {**variables, **quiet}


def _refuse_what_stays(ended: Ended, wanted: Wanted) -> None:
    """Raises: where building from sources would not help either."""
    if ended.code == 0:
        return
    said = "\n".join(ended.lines)
    if ended.code < 0:
        raise EnvironmentUnavailableError(f"the installer was ended by signal {-ended.code}")
    if _NO_SPACE.search(said):
        raise EnvironmentUnusableError(
            f"the disk of {wanted.venv.parent} is full; free some space, or move the cache"
        )
    if wanted.wheels is None and _NETWORK.search(said):
        raise EnvironmentUnavailableError(f"the network failed: {ended.last_words}")
    if _CONFLICT.search(said) and not _NO_WHEEL.search(said):
        raise EnvironmentUnusableError(_failure(ended, wanted))


def _failure(ended: Ended, wanted: Wanted) -> str:
    """What went wrong, by the package's name where it is known."""
    said = "\n".join(ended.lines)
    if _OTHER_DIGEST.search(said):
        named = ", ".join(dict.fromkeys(_WHICH_DIFFERS.findall(said))) or ended.last_words
        return f"a file has another digest than the one on record: {named}; nothing of it was used"
    words = "; ".join(ended.lines[-_QUOTED_LINES:])[-_QUOTED_LENGTH:]
    if _CONFLICT.search(said):
        causes = [line for line in ended.lines if re.search(r"depends on|requested", line)]
        beside = " with the PyTorch that is held" if wanted.held else ""
        reason = "; ".join(causes)[:_QUOTED_LENGTH] or words
        return f"the requirements don't go together{beside}: {reason}"
    missing = _NO_WHEEL.search(said)
    if missing is None:
        return f"the packages could not be installed: {words}"
    name = next(group for group in missing.groups() if group)
    if wanted.hashed:
        return (
            f"{name} is not at this host's package indexes in the version and build of the lock; "
            "packages named under environment.requirements are resolved without it"
        )
    if wanted.wheels is not None:
        return f"no wheel of {name} for this Python in {wanted.wheels}"
    return f"no wheel of {name} for this Python and machine, and it can't be built"


def pip_settings(environment: Mapping[str, str], prefix: str) -> dict[str, str]:
    """pip's options as `pip install` of the interpreter at `prefix` would take them."""
    settings: dict[str, str] = {}
    if environment.get("PIP_CONFIG_FILE") != os.devnull:
        for path in _files(environment, prefix):
            settings.update(_read(path))
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            settings[name[4:].lower().replace("_", "-")] = value
    return settings


def uv_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """The variables by which uv searches where pip would, and chooses as pip would.

    pip takes the best version of all indexes, uv by itself that of the first that has any.
    """
    addresses = settings.get("extra-index-url", "").split()
    variables = {
        "UV_DEFAULT_INDEX": settings.get("index-url", "").strip(),
        "UV_INDEX": " ".join(addresses),
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": ",".join(settings.get("find-links", "").split()),
        "UV_INSECURE_HOST": " ".join(settings.get("trusted-host", "").split()),
        "UV_CONSTRAINT": settings.get("constraint", "").strip(),
        "UV_HTTP_TIMEOUT": settings.get("timeout", settings.get("default-timeout", "")).strip(),
        "SSL_CERT_FILE": settings.get("cert", "").strip(),
        "ALL_PROXY": settings.get("proxy", "").strip(),
    }
    if settings.get("pre", "").lower() in _TRUE:
        variables["UV_PRERELEASE"] = "allow"
    return {name: value for name, value in variables.items() if value}


def uv_options(settings: Mapping[str, str]) -> list[str]:
    """What uv takes on its command line alone."""
    return ["--no-index"] if settings.get("no-index", "").lower() in _TRUE else []


def _files(environment: Mapping[str, str], prefix: str) -> list[Path]:
    """In pip's order: what comes later counts more."""
    home = Path(environment.get("HOME") or os.path.expanduser("~"))
    everyone = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path(folder) / "pip" / "pip.conf" for folder in everyone.split(":") if folder]
    files += [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", own / "pip" / "pip.conf"]
    files.append(Path(prefix) / "pip.conf")
    if environment.get("PIP_CONFIG_FILE"):
        files.append(Path(environment["PIP_CONFIG_FILE"]))
    return files


def _read(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text())
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    options: dict[str, str] = {}
    for section in _SECTIONS:
        if parser.has_section(section):
            options.update({name.replace("_", "-"): value for name, value in parser.items(section)})
    return options
