"""The mix of a phase, and sequences of several lengths, from the prepared tokens of two sources."""

from __future__ import annotations

from pathlib import Path

import torch
from support.host.tiny_training import SEQ_LEN, prepared_config

from trainer_runtime.core.config import RunConfig
from trainer_runtime.train.data.batches import Corpus, TrainingData

NAMES = ["main", "other"]


def data_in(folder: Path) -> TrainingData:
    text = Path(__file__).read_bytes() * 40
    config = RunConfig.parse(prepared_config(folder, "nanogpt", text, other=text[: len(text) // 3]))
    return TrainingData(Corpus.open(config.data.folder, NAMES, SEQ_LEN), [1.0, 1.0], 7)


def test_each_mix_is_realised_from_its_border_on_within_a_thousandth(tmp_path: Path) -> None:
    data = data_in(tmp_path)
    for weights in ([1.0, 0.0], [0.9, 0.1], [0.75, 0.25], [0.6, 0.4]):
        data.take(weights, SEQ_LEN)
        before = data.position
        data.skip(1500)
        drawn = [now - then for now, then in zip(data.position, before, strict=True)]
        assert all(abs(n / 1500 - share) <= 0.001 for n, share in zip(drawn, weights, strict=True))


def test_a_position_within_any_phase_continues_exactly(tmp_path: Path) -> None:
    data = data_in(tmp_path)
    phases = [([1.0, 0.0], SEQ_LEN), ([0.9, 0.1], SEQ_LEN // 4), ([0.5, 0.5], SEQ_LEN)]
    for weights, length in phases:
        data.take(weights, length)
        data.skip(53)
        resumed = TrainingData(data._corpus, [1.0, 1.0], 7)
        resumed.seek(data.position, data.mix)
        resumed.take(weights, length)
        for ours, theirs in zip(data.next_batch(20), resumed.next_batch(20), strict=True):
            assert torch.equal(ours, theirs)


def test_shorter_sequences_read_each_token_once_and_longer_ones_none_of_these(
    tmp_path: Path,
) -> None:
    data = data_in(tmp_path)
    windows = len(data._corpus.training[0])
    data.take([1.0, 0.0], SEQ_LEN // 4)
    short = [data._window(0, ordinal) for ordinal in range(4 * windows)]
    assert sorted(short) == [(window, piece) for window in range(windows) for piece in range(4)]
    data.skip(150)
    read = {window for window, _ in short[:150]}
    data.take([1.0, 0.0], SEQ_LEN)
    ordinals = range(data.position[0], windows)
    assert not read & {data._window(0, ordinal)[0] for ordinal in ordinals}
