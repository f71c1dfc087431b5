"""Records of a host, mutated: each is folded or left out, and raises nothing but its own error."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core.journal_records import (
    EventBody,
    attempt_ended,
    attempt_starting,
    evaluation,
    kept,
    lines,
    metric,
    pruned,
    started,
    state,
)
from support.fuzz.hostile import examples, mutated, texts, values

from trainer_runtime.core.checkpoints.checkpoint_index import build_index
from trainer_runtime.core.decoding import DecodingError, Fields, decode_fields, decode_value
from trainer_runtime.core.files.listing import LeftOut, ListedFile, parse_listed
from trainer_runtime.core.files.manifest import FileEntry, Manifest, ManifestError, build, parse
from trainer_runtime.core.kaggle.log_frames import decode_frame
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.journal import Record, TransitionError
from trainer_runtime.core.protocol.lines import ProtocolError, decode
from trainer_runtime.core.protocol.progress import Progress

pytestmark = pytest.mark.fuzz

_BODIES: list[EventBody] = [
    started(0),
    metric(1, lr=1e-3),
    evaluation(2, 2.0),
    *kept(20, 2.0),
    pruned(20),
    started(20, saved_by=1, skipped=[{"step": 40, "reason": "torn"}]),
    state("running", reason=None, detail=None, generation=1),
    attempt_starting(1),
    attempt_ended(1, "killed", signal=9, started_at_step=0, last_step=3),
    ("sample", {"values": {"gpu_util": 0.5, "disk_free_gib": 3.0}}),
]
_records = st.sampled_from(lines(_BODIES))
_manifest = build(
    Manifest(20, 1, 1.7e9, {"val_loss": 2.0}, ("latest",), "0" * 64, (FileEntry("a", 0, ()),))
)


@examples(150)
@given(st.lists(st.one_of(_records, mutated(_records)), max_size=12))
def test_mutated_records_are_folded_or_left_out(records: list[bytes]) -> None:
    progress, record = Progress(1), Record()
    for line in records:
        try:
            event = decode(line)
        except ProtocolError:
            continue
        progress.apply(event)
        with suppress(TransitionError):
            record.apply(event)
    json.dumps(progress.to_dict())
    json.dumps(record.to_dict())
    json.dumps(build_index([progress], "val_loss").to_dict())


@examples(150)
@given(st.one_of(st.binary(max_size=200), values.map(lambda v: json.dumps(v).encode())))
def test_any_bytes_are_decoded_or_refused_by_name(data: bytes) -> None:
    for read in (decode_value, decode_fields):
        try:
            read(data, "a record")
        except DecodingError as error:
            assert len(str(error)) < 2000
    try:
        parse(data)
    except ManifestError:
        return


@examples(100)
@given(mutated(st.just(_manifest.rstrip())))
def test_a_changed_manifest_is_refused(data: bytes) -> None:
    if data.rstrip() != _manifest.rstrip():
        with pytest.raises(ManifestError):
            parse(data)


@examples(100)
@given(st.dictionaries(st.sampled_from(["state", "generation", "mode", "step", "skip"]), values))
def test_a_request_of_any_form_is_read_or_refused(document: dict[str, object]) -> None:
    try:
        Desired.of(Fields(document, "desired.json"))
    except ValueError:
        return


_ROW = ("path", "size", "mtime_ns", "sha256", "skipped", "reason")


@examples(100)
@given(st.one_of(values, st.dictionaries(st.sampled_from(_ROW), values)))
def test_a_row_of_a_listing_is_a_file_or_left_out(row: object) -> None:
    found = parse_listed(row)
    assert isinstance(found, (ListedFile, LeftOut))
    if isinstance(found, ListedFile):
        assert 0 <= found.size_bytes < 2**63


@examples(100)
@given(st.one_of(texts, texts.map(lambda text: f"tm1 {text}")))
def test_a_frame_of_a_log_is_read_or_ignored(line: str) -> None:
    decode_frame(line)
