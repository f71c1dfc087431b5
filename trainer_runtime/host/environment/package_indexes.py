"""Translates pip's settings for uv, which reads none of them.

pip reads its indexes from its configuration files and from PIP_… variables; uv is given the
same by UV_… variables: never on a command line, where everybody could read the passwords that
such addresses may hold.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path

_SECTIONS = ("global", "install")
_TRUE = ("1", "true", "yes", "on", "y", "t")


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
