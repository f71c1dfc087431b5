"""The paths in the home of the client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.below import Below
from trainer_runtime.core.files.protected import is_protected

HOME_VARIABLE = "TRAINMASTER_HOME"


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of all local data; safe to copy as a whole while no command runs."""

    root: Path

    control_db = Below("control.db")
    metrics_db = Below("metrics.db")
    action_log = Below("log", "trainmaster.jsonl")
    """Every call that acted; see `store.action_log`."""
    reserve = Below("reserve")
    """Disk space for what ends things; see `store.reserve`."""
    reserved_files = Below("reserve.files")
    """Empty files whose inodes are given up in the same way."""
    mirror_usage = Below("mirror.usage")
    """What all mirrors hold, as it was measured last."""
    copies_usage = Below("copies.usage")
    """What all downloads and copies of checkpoints take, as it was measured last."""
    mirror = Below("mirror")
    local_root = Below("local")
    """The root of the host `local`."""
    debug_root = Below("debug")
    kaggle_clients = Below("kaggle-clients")
    """Temporary files of Kaggle's client."""

    def kaggle_secret(self, slug: str) -> Path:
        """An empty file that exists while a data set of this name may hold secrets at Kaggle."""
        return self.root / "kaggle-secrets" / slug

    def monitor(self, name: str) -> Path:
        """What the monitors of this name have reported; see `runs.monitor.record`."""
        return self.root / "monitors" / f"{name}.jsonl"

    def awaited_rehearsal(self, run_id: str) -> Path:
        """An empty file, as long as a training is to follow this rehearsal."""
        return self.root / "rehearsals" / run_id

    def plot(self, name: str) -> Path:
        """The plot of this name that was drawn for an agent."""
        return self.root / "plots" / f"{name}.png"

    def follower_lock(self, host: str) -> Path:
        return self.root / "followers" / f"{host}.lock"

    def follower_asked(self, host: str) -> Path:
        """An empty file; its mtime is when a process last asked the host's follower for news."""
        return self.root / "followers" / f"{host}.asked"

    def follower_pass(self, host: str) -> Path:
        """The result of the newest pass over a host's runs; see `sync.last_pass`."""
        return self.root / "followers" / f"{host}.pass"

    secrets_env = Below("secrets.env")
    """Values of secrets, one `NAME=value` per line; readable by its owner only."""
    access_tokens = Below("mcp-tokens.json")
    """Who may use the MCP server over HTTP; see `store.access_tokens`."""
    settings = Below("settings.yaml")
    kinds = Below("kinds.yaml")
    """The user's own kinds of failures; see `runs.diagnosis.own_kinds`."""

    def keeps_private(self, path: Path) -> bool:
        """Whether a file holds keys, secrets, settings or the URLs of alerts."""
        return is_protected(path, self.private_roots)

    @property
    def private_roots(self) -> tuple[Path, ...]:
        """The folders that hold such files."""
        return self.root, self.local_root, self.debug_root

    downloads = Below("downloads")
    """The folder that tools download into, unless the settings name another one."""

    def secrets(self, run_id: str) -> Path:
        """The secrets of a run while it may need them; readable by its owner only."""
        return self.root / "secrets" / f"{run_id}.json"

    def stacks(self, run_id: str) -> Path:
        """Stack dumps of a run, as `inspect` fetched them."""
        return self.root / "stacks" / run_id

    def pins(self, host: str) -> Path:
        """The pinned keys of a host, in OpenSSH's known_hosts format."""
        return self.root / "hosts" / host / "known_hosts"

    def found(self, host: str) -> Path:
        """Cached facts of a host."""
        return self.root / "hosts" / host / "found.json"

    def reached(self, host: str) -> Path:
        """An empty file; its mtime is the last successful call of the host."""
        return self.root / "hosts" / host / "reached"

    def checked(self, host: str) -> Path:
        """The result of the last check of a host."""
        return self.root / "hosts" / host / "checked.json"

    def searched(self, host: str) -> Path:
        """When a host was last searched for runs that are not on record."""
        return self.root / "hosts" / host / "searched.json"

    rebuild_lock = Below("rebuild.lock")
    """Held by the process that rebuilds `metrics.db`."""
    rebuild_progress = Below("rebuild.progress")
    """Done and total bytes of the newest rebuild of `metrics.db`."""

    def transfer_lock(self, run_id: str) -> Path:
        return self.root / "transfers" / f"{run_id}.lock"

    def transfer_progress(self, run_id: str) -> Path:
        return self.root / "transfers" / f"{run_id}.json"

    alerts_lock = Below("alerts", "sending.lock")
    """Held by the process that sends the client's alerts."""
    maintenance_lock = Below("maintenance.lock")
    """Held by the MCP server that maintains this home's runs, as long as it lives."""
    keeper_lock = Below("keeper.lock")
    """Held by the running tick: two never overlap."""

    def keeper_part_lock(self, part: str) -> Path:
        """Held by the process that does this part of a tick."""
        return self.root / f"keeper.{part}.lock"

    keeper_ticked = Below("keeper.json")
    """The time and result of the last tick."""
    keeper_installed = Below("keeper.installed")
    """The interval of the installed keeper in seconds; its mtime is the installation."""
    rented_key = Below("keys", "rented")
    """The private key for the instances that this home rents; readable by its owner only."""

    def instance_lock(self, tag: str) -> Path:
        """Held by the process that advances a rented instance."""
        return self.root / "instances" / f"{tag}.lock"

    def kaggle(self, run_id: str) -> Path:
        """The pushed files of a run at Kaggle, and its fetched outputs."""
        return self.root / "kaggle" / run_id

    def advance_lock(self, run_id: str) -> Path:
        return self.root / "advancing" / f"{run_id}.lock"


def find_home(environment: Mapping[str, str]) -> Home:
    """The home of `TRAINMASTER_HOME`; the platform's data folder if it is unset or empty."""
    named = environment.get(HOME_VARIABLE)
    if named:
        return Home(Path(os.path.abspath(os.path.expanduser(named))))
    import platformdirs  # `--help` needs no home

    return Home(Path(platformdirs.user_data_dir("trainmaster")).absolute())
