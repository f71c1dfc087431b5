"""Small wheels, and interpreters of several kinds to build environments on."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
) -> Path:
    """A wheel of one module that holds its version, or of `files`."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {item}\n" for item in requires)
    described = f"{name}-{version}.dist-info"
    contents = {
        **(files or {f"{name}.py": f"VERSION = {version!r}\n"}),
        f"{described}/METADATA": metadata,
        f"{described}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in contents.items())
    contents[f"{described}/RECORD"] = f"{record}{described}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inside, text in contents.items():
            wheel.writestr(inside, text)
    return path


def make_environment(folder: Path, wheels: Sequence[Path] = (), *, bare: bool = False) -> Path:
    """A virtual environment's interpreter, with these wheels laid into it.

    `bare`: it has neither pip nor what could bring it, as Debian's without python3-venv.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as opened:
            opened.extractall(packages)
    if bare:
        hidden = "import sys; sys.modules.update(dict.fromkeys(('venv', 'ensurepip')))\n"
        (packages / "hidden.pth").write_text(hidden)
    return folder / "bin" / "python"


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
