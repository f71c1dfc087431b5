"""Builds a release of the checked-out commit into `dist/`: `make release`.

Writes the wheel, the sdist and the bundle for MCP clients (`.mcpb`), each built twice from the
commit's files in different folders and compared byte for byte; `server.json`, the entry of the MCP
registry; `sbom.cdx.json`, CycloneDX of what they need at the versions that were
tested; `provenance.intoto.json`, an in-toto statement with SLSA's provenance predicate; and
`SHA256SUMS` of all of these. Nothing of it depends on the time, the folder or the machine.
Refused where the commit does not say where it is published, which only its publisher knows.

`TRAINMASTER_SIGNING_KEY`: an SSH key; `SHA256SUMS.sig` is then its signature, in the namespace
`trainmaster-release` (`ssh-keygen -Y verify`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomllib
from manifests import as_json, lacking, server_json, write_bundle

from trainer_runtime.core.environment.lock import locked, locked_packages, parse_lock

ROOT = Path(__file__).parents[1]
SBOM, PROVENANCE, SUMS = "sbom.cdx.json", "provenance.intoto.json", "SHA256SUMS"
_EXTRAS = ("kaggle", "paramiko", "plot")
_NAMESPACE = "trainmaster-release"
_SIGNING_KEY = "TRAINMASTER_SIGNING_KEY"
# Names of formats and of this build, which lead nowhere.
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://slsa.dev/provenance/v1"
_BUILD_TYPE, _BUILDER = "urn:trainmaster:make-release:v1", "urn:trainmaster:builder:local"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--output", type=Path, default=ROOT / "dist")
    output: Path = arguments.parse_args().output
    if _git("status", "--porcelain").strip():
        print("A release is built from a commit: commit or stash what differs.", file=sys.stderr)
        return 1
    if unsaid := lacking(ROOT):
        print("\n".join(unsaid), file=sys.stderr)
        return 1
    commit, epoch = _git("rev-parse", "HEAD").strip(), _git("log", "-1", "--format=%ct").strip()
    shutil.rmtree(output, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        built = [_built(Path(folder, name), commit, epoch) for name in ("one", "the-other")]
        if differing := _differing(*built):
            print(f"Two builds of one commit differ: {', '.join(differing)}", file=sys.stderr)
            return 1
        shutil.copytree(built[0], output)
        _write_sbom(output / SBOM, Path(folder), epoch)
    _write_server_json(output)
    _write_provenance(output, commit)
    _write_sums(output)
    for path in sorted(output.iterdir()):
        print(f"{_sha256(path)}  {path.name}")
    return 0


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _built(folder: Path, commit: str, epoch: str) -> Path:
    """The folder of wheel, sdist and bundle, built from the commit's own files."""
    source = folder / "source"
    source.mkdir(parents=True)
    archive = folder / "source.tar"
    _git("archive", f"--output={archive}", commit)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(source)], check=True)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist")]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONHASHSEED": "0"}
    subprocess.run([*command, str(source)], check=True, env=environment, stdout=subprocess.DEVNULL)
    version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
    write_bundle(source, folder / "dist" / f"trainmaster-{version}.mcpb")
    return folder / "dist"


def _differing(one: Path, other: Path) -> list[str]:
    names = {path.name for folder in (one, other) for path in folder.iterdir()}
    return sorted(name for name in names if _digest(one / name) != _digest(other / name))


def _digest(path: Path) -> str | None:
    return _sha256(path) if path.exists() else None


def _write_sbom(path: Path, folder: Path, epoch: str) -> None:
    """The components of an installation with extras, and what hosts install for frameworks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in _EXTRAS:
        wanted += project["optional-dependencies"][extra]
    known = parse_lock((ROOT / "requirements-dev.lock").read_text())
    names = [line.partition(">")[0].partition("[")[0].partition("=")[0] for line in wanted]
    client = locked(names, known)
    if client is None:
        raise SystemExit("requirements-dev.lock lacks a dependency: run scripts/make_locks.py")
    lines = sorted({str(package) for package in (*client, *locked_packages())})
    listed = folder / "components.txt"
    listed.write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", str(listed)]
    options = ["--output-reproducible", "--pyproject", str(ROOT / "pyproject.toml")]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    made = subprocess.run([*command, *options], check=True, capture_output=True, env=environment)
    path.write_text(_json(_without_index(json.loads(made.stdout))))


def _without_index(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with digests at the components themselves instead of at an index's address."""
    components = []
    for component in document["components"]:
        references = component.pop("externalReferences", ())
        hashes = [one for reference in references for one in reference.get("hashes", ())]
        component.pop("description", None)
        components.append({**component, **({"hashes": hashes} if hashes else {})})
    metadata = dict(document["metadata"])
    metadata["tools"] = {"components": [_tool(one) for one in metadata["tools"]["components"]]}
    return {**document, "metadata": metadata, "components": components}


def _tool(component: Mapping[str, Any]) -> dict[str, Any]:
    return {key: component[key] for key in ("type", "group", "name", "version") if key in component}


def _write_server_json(output: Path) -> None:
    (bundle,) = output.glob("*.mcpb")
    document = server_json(ROOT, bundle.name, _sha256(bundle))
    (output / "server.json").write_text(as_json(document))


def _write_provenance(output: Path, commit: str) -> None:
    """https://slsa.dev/spec/v1.0/provenance; the build reads nothing but the commit."""
    subjects = [path for path in sorted(output.iterdir()) if path.is_file()]
    locks = {
        name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        for name in ("requirements-dev.lock", "trainer_runtime/core/environment/packages.lock")
    }
    versions = {name: _version(name) for name in ("build", "hatchling", "cyclonedx-bom")}
    statement = {
        "_type": _STATEMENT,
        "subject": [{"name": one.name, "digest": {"sha256": _sha256(one)}} for one in subjects],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {"commit": commit},
                "internalParameters": {
                    "python": ".".join(map(str, sys.version_info[:2])),
                    "tools": versions,
                },
                "resolvedDependencies": [
                    {"name": "trainmaster", "digest": {"gitCommit": commit}},
                    *({"name": name, "digest": {"sha256": one}} for name, one in locks.items()),
                ],
            },
            "runDetails": {"builder": {"id": _BUILDER}, "metadata": {"invocationId": commit}},
        },
    }
    (output / PROVENANCE).write_text(_json(statement))


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def _write_sums(output: Path) -> None:
    lines: Sequence[str] = [
        f"{_sha256(path)}  {path.name}\n" for path in sorted(output.iterdir()) if path.is_file()
    ]
    (output / SUMS).write_text("".join(lines))
    key = os.environ.get(_SIGNING_KEY)
    if key:
        sign = ["ssh-keygen", "-q", "-Y", "sign", "-n", _NAMESPACE, "-f", key]
        subprocess.run([*sign, str(output / SUMS)], check=True)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(main())
