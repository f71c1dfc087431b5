"""Where Trainmaster keeps things on the operator's side: the one place that builds these paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

HOME_VARIABLE = "TRAINMASTER_HOME"


@dataclass(frozen=True, slots=True)
class Home:
    """The folder that holds everything; safe to copy as a whole while nothing runs."""

    root: Path

    @property
    def control_db(self) -> Path:
        return self.root / "control.db"

    @property
    def metrics_db(self) -> Path:
        return self.root / "metrics.db"

    @property
    def action_log(self) -> Path:
        """Every call that acted; see `store.action_log`."""
        return self.root / "log" / "trainmaster.jsonl"

    @property
    def mirror(self) -> Path:
        return self.root / "mirror"

    @property
    def local_root(self) -> Path:
        """What `~/.trainmaster` is on other hosts."""
        return self.root / "local"

    @property
    def debug_root(self) -> Path:
        return self.root / "debug"

    @property
    def kaggle_clients(self) -> Path:
        """Where Kaggle's client keeps what it sends, as long as it does."""
        return self.root / "kaggle-clients"

    def kaggle_secret(self, slug: str) -> Path:
        """Empty; there while a data set of this name may hold a run's secrets at Kaggle."""
        return self.root / "kaggle-secrets" / slug

    def plot(self, name: str) -> Path:
        """The picture of this name that was drawn for an agent."""
        return self.root / "plots" / f"{name}.png"

    def follower_lock(self, host: str) -> Path:
        return self.root / "followers" / f"{host}.lock"

    def follower_pass(self, host: str) -> Path:
        """About the newest pass over a host's runs; see `follow.last_pass`."""
        return self.root / "followers" / f"{host}.pass"

    @property
    def secrets_env(self) -> Path:
        """Values of secrets by name, one `NAME=value` a line; readable by its owner alone."""
        return self.root / "secrets.env"

    @property
    def settings(self) -> Path:
        return self.root / "settings.yaml"

    def keeps_private(self, path: Path) -> bool:
        """Whether a file is one of those that hold keys, secrets or the addresses of alerts."""
        folders = ("keys", "kaggle-secrets", "secrets")
        private = [self.secrets_env, self.settings, *(self.root / name for name in folders)]
        place = path.resolve()
        return any(place.is_relative_to(one.resolve()) for one in private)

    @property
    def downloads(self) -> Path:
        """Where tools bring files, unless the settings name another folder."""
        return self.root / "downloads"

    def secrets(self, run_id: str) -> Path:
        """The values that a run was given, as long as it may need them; its owner's alone."""
        return self.root / "secrets" / f"{run_id}.json"

    def stacks(self, run_id: str) -> Path:
        """What looks at a run's processes have brought here."""
        return self.root / "stacks" / run_id

    def pins(self, host: str) -> Path:
        """The keys that a host is known by, in OpenSSH's known_hosts format."""
        return self.root / "hosts" / host / "known_hosts"

    def found(self, host: str) -> Path:
        """What was found out about a host and may be found out again."""
        return self.root / "hosts" / host / "found.json"

    def reached(self, host: str) -> Path:
        """Empty; its time is when the host last did what a command wanted of it."""
        return self.root / "hosts" / host / "reached"

    def checked(self, host: str) -> Path:
        """How a host was when it was last checked."""
        return self.root / "hosts" / host / "checked.json"

    def transfer_lock(self, run_id: str) -> Path:
        return self.root / "transfers" / f"{run_id}.lock"

    def transfer_progress(self, run_id: str) -> Path:
        return self.root / "transfers" / f"{run_id}.json"

    @property
    def alerts_lock(self) -> Path:
        """Held by the process that sends this side's alerts."""
        return self.root / "alerts" / "sending.lock"

    @property
    def maintenance_lock(self) -> Path:
        """Held by the MCP server that maintains this home's runs, as long as it lives."""
        return self.root / "maintenance.lock"

    @property
    def keeper_lock(self) -> Path:
        """Held by the tick that is at work: two never overlap."""
        return self.root / "keeper.lock"

    @property
    def keeper_ticked(self) -> Path:
        """When a tick last was, and how it went."""
        return self.root / "keeper.json"

    @property
    def keeper_installed(self) -> Path:
        """Every how many seconds a keeper is to come; its time is when that was installed."""
        return self.root / "keeper.installed"

    @property
    def rented_key(self) -> Path:
        """The private key for the instances that this home rents (mode 0600)."""
        return self.root / "keys" / "rented"

    def instance_lock(self, tag: str) -> Path:
        """Held by the process that advances a rented instance."""
        return self.root / "instances" / f"{tag}.lock"

    def kaggle(self, run_id: str) -> Path:
        """What is pushed for a run at Kaggle, and what was fetched of its outputs."""
        return self.root / "kaggle" / run_id

    def advance_lock(self, run_id: str) -> Path:
        return self.root / "advancing" / f"{run_id}.lock"


def find_home(environment: Mapping[str, str]) -> Home:
    """The home that `TRAINMASTER_HOME` names, the platform's own where it is unset or empty."""
    named = environment.get(HOME_VARIABLE)
    root = Path(named).expanduser() if named else Path(platformdirs.user_data_dir("trainmaster"))
    return Home(root.absolute())
