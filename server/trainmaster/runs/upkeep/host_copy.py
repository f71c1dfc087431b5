"""The copy of a run's record in its folder on the host: for a home that was restored from a backup.

It is sealed with a key of this home, so that no host can make up a run of it, nor move one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any

from trainer_runtime.core.decoding import DecodingError, Fields, decode_fields
from trainer_runtime.core.protocol.desired import RECORD
from trainmaster.backends import DEBUG, KAGGLE
from trainmaster.store.control.schema import RECORD_KEY
from trainmaster.store.run import Run
from trainmaster.store.run_id import RUN_ID
from trainmaster.sync.workspace import Workspace

_VERSION = 1


def record_file(workspace: Workspace, run: Run) -> dict[str, bytes]:
    """The file, by its name; none where runs live in the home, or in a kernel that others see."""
    if run.host in (DEBUG, KAGGLE):
        return {}
    record = json.dumps(
        {
            "run_id": run.run_id,
            "host": run.host,
            "name": run.name,
            "created_t": run.created_t,
            "spec": run.spec,
            "config": dict(run.document),
            "plan": dict(run.plan),
            "labels": dict(run.labels),
        }
    )
    sealed = {"v": _VERSION, "record": record, "seal": _seal(workspace, record)}
    return {RECORD: json.dumps(sealed).encode()}


def own_record(workspace: Workspace, host: str, run_id: str, sealed: Fields) -> Run | None:
    """The run that this home recorded on this host; None where the record is another one's, was
    changed, or is of a later version."""
    try:
        record = sealed.text("record")
        if sealed.integer("v") != _VERSION:
            return None
        if not hmac.compare_digest(sealed.text("seal"), _seal(workspace, record)):
            return None
        fields = decode_fields(record, RECORD)
        if (fields.text("run_id"), fields.text("host")) != (run_id, host):
            return None
        return _run(fields)
    except DecodingError:
        return None


def bare_record(host: str, run_id: str, config: Mapping[str, Any], created_t: float) -> Run:
    """What a run's own configuration says of it: its spec, plan and labels are lost."""
    name = run_id.rpartition("-")[0]
    document = {**config, "run_id": run_id}
    return Run(run_id, name, created_t, host, "", document, {}, {})


def is_run_id(text: str) -> bool:
    return RUN_ID.fullmatch(text) is not None


def _run(fields: Fields) -> Run:
    return Run(
        run_id=fields.text("run_id"),
        name=fields.text("name"),
        created_t=fields.time("created_t"),
        host=fields.text("host"),
        spec=fields.text("spec"),
        document=fields.open_map("config"),
        plan=fields.open_map("plan"),
        labels=fields.text_map("labels"),
    )


def _seal(workspace: Workspace, record: str) -> str:
    key = workspace.control.facts.put_once(RECORD_KEY, secrets.token_hex(32))
    return hmac.new(bytes.fromhex(key), record.encode(), hashlib.sha256).hexdigest()
