"""Lines whose meaning depends on words and lines before them: never a step that the log does not
have, never a mean or a value of held-out data as the loss, never a number of printed source."""

from __future__ import annotations

import pytest

from trainer_runtime.core.diagnosis.parse import LogParser
from trainer_runtime.core.diagnosis.parse.pattern import PatternError, patterns_of

_HF = "{{'loss': {}, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': {}}}\n"


def read(log: str, pattern: str | None = None, piece: int | None = None) -> dict[str, list[object]]:
    """The steps and values of both losses."""
    parser = LogParser(patterns=patterns_of(pattern) if pattern else ())
    data = log.encode()
    pieces = range(0, len(data), piece or len(data))
    points = [p for at in pieces for p in parser.feed(data[at : at + (piece or len(data))])]
    points += parser.close()
    return {
        key: [(p.step, p.value) for p in points if p.key == key]
        for key in ("loss", "val_loss")
        if any(p.key == key for p in points)
    }


def keras(epoch: int, loss: float, val_loss: float) -> str:
    seen = f" 60/120 [====>.....] - ETA: 5s - loss: {loss + 1:.4f}\r"
    unfinished = f"120/120 [=======] - ETA: 0s - loss: {loss:.4f}\r"
    closing = f"120/120 [=======] - 9s 70ms/step - loss: {loss:.4f} - val_loss: {val_loss:.4f}\n"
    return f"Epoch {epoch}/3\n{seen}{unfinished}{closing}"


def paddle(epoch: int, loss: float) -> str:
    steps = "".join(f"step {at}/20 - loss: {loss:.4f} - 7ms/step\n" for at in (10, 20))
    evaluated = "".join(f"step {at}/5 - loss: {loss + at:.4f} - 7ms/step\n" for at in (3, 5))
    return f"Epoch {epoch}/2\n{steps}Eval begin...\n{evaluated}Eval samples: 80\n"


_FORMS = {
    "an estimate beside a validation is not the loss of a log that has another": (
        "step 0: train loss 4.9, test loss 5.1\nstep 0 | loss 5.0\nstep 1 | loss 4.0\n"
        "step 2: train loss 3.4, test loss 3.6\nstep 2 | loss 3.5\n",
        {"loss": [(0, 5.0), (1, 4.0), (2, 3.5)], "val_loss": [(0, 5.1), (2, 3.6)]},
    ),
    "an estimate beside a validation is the loss of a log that has no other": (
        "".join(f"step {n} | train loss {5 - n}.5 | test loss {6 - n}.5\n" for n in range(4)),
        {"loss": [(n, 5.5 - n) for n in range(4)], "val_loss": [(n, 6.5 - n) for n in range(4)]},
    ),
    "the loss of the training since the last evaluation, below its losses": (
        "step 10, loss = 2.5\nstep 10: train_loss = 2.7, dev_score = 0.8\nstep 20, loss = 2.4\n",
        {"loss": [(10, 2.5), (20, 2.4)]},
    ),
    "an epoch and a batch beside a slash": (
        "TRAIN Batch 0/100 loss 5.0 lr 1e-3\nTRAIN Batch 0/200 loss 4.0 lr 1e-3\n"
        "CV Batch 0/100 loss 6.0 lr 1e-3\nTRAIN Batch 1/100 loss 3.0 lr 1e-3\n",
        {"loss": [(100, 5.0), (200, 4.0)]},
    ),
    "batches without an epoch, of an evaluation, where those of the training have one": (
        "[Epoch 0 Batch 50/100] loss=3.0\n[Epoch 0 Batch 100/100] loss=2.0\n"
        "[Batch 50/100] loss=2.8\n[Epoch 1 Batch 50/100] loss=1.0\n",
        {"loss": [(50, 3.0), (100, 2.0), (150, 1.0)]},
    ),
    "steps below epochs that begin again without a total": (
        "Start of epoch 0\nTraining loss (for one batch) at step 0: 9.0\n"
        "Training loss (for one batch) at step 100: 8.0\nStart of epoch 1\n"
        "Training loss (for one batch) at step 0: 7.0\n"
        "Training loss (for one batch) at step 100: 6.0\n",
        {"loss": [(0, 9.0), (100, 8.0)]},
    ),
    "iterations beyond the number of an epoch's count through": (
        "Epoch[1] Iteration[900/938] Loss: 2.5\nEpoch[2] Iteration[1038/938] Loss: 1.5\n"
        "Training Results - Epoch: 2 Avg loss: 1.4\nValidation Results - Epoch: 2 Avg loss: 1.6\n",
        {"loss": [(900, 2.5), (1038, 1.5)], "val_loss": [(1038, 1.6)]},
    ),
    "an epoch is not the step of a validation below batches that were left out": (
        "epoch 1, batch 50, loss 3.0\nepoch 1, validation loss 3.5\n"
        "epoch 2, batch 50, loss 2.0\nepoch 2, validation loss 2.5\n",
        {"loss": [(50, 3.0)], "val_loss": [(50, 3.5)]},
    ),
    "a number in brackets is a step if it rises": (
        "w.py:64] [100] acc=0.1, loss=9.5\nw.py:64] [200] acc=0.2, loss=8.5\n",
        {"loss": [(100, 9.5), (200, 8.5)]},
    ),
    "a number in brackets that does not rise is the rank": (
        "[3] acc=0.1, loss=9.5\n[3] acc=0.2, loss=8.5\n",
        {},
    ),
    "an object over several lines": (
        "{'accuracy': 0.1,\n 'loss': 7.5,\n 'step': 50}\n\n"
        '  {\n    "epoch": 0.5,\n    "loss": 6.5,\n    "step": 100\n  },\n',
        {"loss": [(50, 7.5), (100, 6.5)]},
    ),
    "an object below its counter": (
        "train | step: 500 | steps/sec: 8.2 | output:\n    {'lr': 0.1, 'training_loss': 9.5}\n"
        " eval | step: 500 | eval time: 2.6 sec | output:\n    {'validation_loss': 9.8}\n",
        {"loss": [(500, 9.5)], "val_loss": [(500, 9.8)]},
    ),
    "a loss some lines below its counter, but not one of an evaluation": (
        "=== Step 1/9 ===\nGenerating...\nResults:\n  - Loss: 0.5\n"
        "=== Step 2/9 ===\nValidation results:\n  - Loss: 0.9\n",
        {"loss": [(1, 0.5)]},
    ),
    "a frame with the counter above the loss": (
        "--------\n| iterations | 2 |\n| train/ | |\n|  entropy_loss | -0.6 |\n|  loss | 0.5 |\n"
        "--------\n",
        {"loss": [(2, 0.5)]},
    ),
    "a table in a frame": (
        "| Epoch | Step | Training Loss | Validation Loss |\n|:---:|:---:|:---:|:---:|\n"
        "| 0.5 | 100 | 4.5 | - |\n| 1.0 | 200 | 3.5 | 3.75 |\n",
        {"loss": [(100, 4.5), (200, 3.5)], "val_loss": [(200, 3.75)]},
    ),
    "a table whose names stand on two lines": (
        "| Epoch | Iteration | Time Elapsed | Mini-batch | Validation |\n"
        "|       |           | (hh:mm:ss)   | Loss       | Loss       |\n"
        "| 1 | 50 | 00:00:03 | 2.5 | 2.75 |\n| 1 | 100 | 00:00:06 | 2.25 | |\n",
        {"loss": [(50, 2.5), (100, 2.25)], "val_loss": [(50, 2.75)]},
    ),
    "the first line of a log that is printed before any bar": (
        _HF.format(5.5, 0.5)
        + " 10%|#  | 5/50 [00:05<00:45,  1.00it/s]\n"
        + _HF.format(4.5, 1.0)
        + " 20%|#  | 10/50 [00:10<00:40,  1.00it/s]\n",
        {"loss": [(5, 5.5), (10, 4.5)]},
    ),
    "a step and its total in a text": (
        '{"loss": 2.5, "epoch": 0.1, "global_step/max_steps": "5/50"}\n'
        '{"eval_loss": 2.75, "epoch": 0.1, "global_step/max_steps": "5/50"}\n',
        {"loss": [(5, 2.5)], "val_loss": [(5, 2.75)]},
    ),
    "a mean is the epoch's where there is nothing else": (
        "Epoch 0 - Average Loss: 3.2000\nEvaluation Epoch 0 - Average Loss: 3.0000\n",
        {"loss": [(0, 3.2)], "val_loss": [(0, 3.0)]},
    ),
    "a mean of an epoch below its steps is left out": (
        "epoch 1 step 10/20 | loss 2.5\nEpoch 1 done, loss: 2.9\nEpoch 2 done, loss: 2.8\n",
        {"loss": [(10, 2.5)]},
    ),
    "a batch without a total is a step in the first epoch alone": (
        "epoch: 0, batch_id: 50, loss:0.8\nepoch: 0 done, loss:0.84\n"
        "epoch: 1, batch_id: 50, loss:0.7\nepoch: 1 done, loss:0.74\n",
        {"loss": [(50, 0.8)]},
    ),
    "batches with a total are counted through": (
        "Epoch: 01/03 | Batch 0000/0020 | Loss: 3\nEpoch: 01/03 | Batch 0010/0020 | Loss: 2.5\n"
        "Epoch: 02/03 | Batch 0000/0020 | Loss: 2\n",
        {"loss": [(0, 3.0), (10, 2.5), (20, 2.0)]},
    ),
    "two brackets": (
        "Epoch: [0][  10/50]\tLoss 6.9 (7.0)\nTest: [ 1/9]\tLoss 1.2 (1.3)\n"
        "Epoch: [1][  10/50]\tLoss 5.9 (6.0)\n",
        {"loss": [(10, 6.9), (60, 5.9)]},
    ),
    "a validation line without a counter belongs to the step above": (
        "Epoch[0] - Iter: [0/13]\tLoss 6.7 (6.7)\nTest:\tTime 4.7\tLoss 3.7\tAcc@1 27.2\n",
        {"loss": [(0, 6.7)], "val_loss": [(0, 3.7)]},
    ),
    "words before the loss": (
        "[Train] Epoch 001: loss = 0.5\n[Diff-Val(Test)] Epoch 001 (Deterministic): loss = 0.7\n"
        "Epoch 002: v_loss 0.6  loss 0.4\nBest val loss: 0.6 at epoch 2\n",
        {"loss": [(1, 0.5), (2, 0.4)], "val_loss": [(1, 0.7), (2, 0.6)]},
    ),
    "batches of an evaluation are no steps": (
        "Epoch 1 [train]: 100%|###| 12/12 [00:09<00:00, 1.3it/s, loss=0.9]\n"
        "Epoch 1 [val]: 100%|###| 5/5 [00:09<00:00, 1.3it/s, loss=0.6]\n"
        "Validation: 100%|###| 5/5 [00:09<00:00, 1.3it/s, loss=0.6]\n[Eval] step 5/20 loss 2.2\n",
        {"loss": [(12, 0.9)]},
    ),
    "a counter on the line above": (
        "iter = 20\n\tloss = 2.5, accuracy (cur) = 0.3\nrollout batch 21 generated, length: 256\n"
        "2025-09-23 09:01:00,984 - train - INFO - rl_loss: 2.4, time: 9.0\nloss: 2.3\n",
        {"loss": [(20, 2.5), (21, 2.4)]},
    ),
    "printed source": (
        "        val_loss = 0.0\n    for step in range(10): loss = 0.5\nstate = {'step': 0, "
        "'loss': 0.25}\n    t = dict(step=0, loss=3.5)\nstep:0/100 val_loss:9.5\n"
        "    val_loss = 0.0\n",
        {"val_loss": [(0, 9.5)]},
    ),
    "a validation before any step": (
        "validation loss: 2.95\nstep 1 loss 2.5\n",
        {"loss": [(1, 2.5)]},
    ),
    "samples of an epoch": (
        "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.1\nTrain Epoch: 2 [0/60000 (0%)]\tLoss: 1.9\n",
        {"loss": [(640, 2.1), (60000, 1.9)]},
    ),
    "a step of the whole training beside the epoch's": (
        "  --> STEP: 1/9 -- GLOBAL_STEP: 10\n   | > loss: 2.5 (2.6)\n",
        {"loss": [(10, 2.5)]},
    ),
    "a result behind words of an evaluation": (
        "loss = 2.5, step = 9\nSaving dict for global step 9: global_step = 9, loss = 2.6\n",
        {"loss": [(9, 2.5)], "val_loss": [(9, 2.6)]},
    ),
    "a sum beside aligned fields": (
        "Epoch 1, Step:      9, Batch Loss:     2.5\nEpoch 1: total training loss 30.7, n: 3\n",
        {"loss": [(9, 2.5)]},
    ),
    "counters of their own names": (
        "Ep. 1 : Up. 9 : Sen. 2,500 : Cost 2.5 * 7 : Time 1.2s\n",
        {"loss": [(9, 2.5)]},
    ),
    "boosters": (
        "[9]\ttraining's binary_logloss: 0.67\tvalid_1's binary_logloss: 0.68\n",
        {"loss": [(9, 0.67)], "val_loss": [(9, 0.68)]},
    ),
    "no counter at all": ("train loss = 0.3\nloss: 0.4, Performance is better\n", {}),
    "LLaMA-Factory": (
        '{"current_steps": 25, "total_steps": 100, "loss": 2.5, "epoch": 0.5}\n'
        '{"current_steps": 50, "total_steps": 100, "eval_loss": 2.2, "epoch": 1.0}\n',
        {"loss": [(25, 2.5)], "val_loss": [(50, 2.2)]},
    ),
    "HF below slow bars": (
        f"  0%|  | 24/23260 [04:22<70:55:06, 10.99s/it]\n{_HF.format(1.5, 0.021496130696474634)}"
        + "\n" * 9
        + f"  0%|  | 49/23260 [08:22<70:55:06, 10.99s/it]\n{_HF.format(1.4, 0.04299226139294927)}",
        {"loss": [(25, 1.5), (50, 1.4)]},
    ),
    "HF behind all bars": (
        f"100%|##| 10/10 [00:04<00:00,  1.31s/it]\n{_HF.format(1.5, 0.25)}{_HF.format(1.4, 0.75)}",
        {"loss": [(1, 1.5), (2, 1.4)]},
    ),
    "Keras": (
        keras(1, 0.91, 0.82) + keras(2, 0.81, 0.72) + "9/9 [====] - 1s 2ms/step - loss: 0.0800\n",
        {"loss": [(1, 0.91), (2, 0.81)], "val_loss": [(1, 0.82), (2, 0.72)]},
    ),
    "an evaluation behind a step of the training": (
        "completed step: 9, loss: 5.5, perplexity: 9.1\nCompleted eval after train step 9, "
        "loss=6.5, perplexity=8.0\ntrain step 10, loss=5.25\n",
        {"loss": [(9, 5.5), (10, 5.25)], "val_loss": [(9, 6.5)]},
    ),
    "batches below an epoch of its own line are counted through": (
        "epoch 1\n  batch 0/20 loss=3.5\n  batch 10/20 loss=3.0\nepoch 1 done: train loss 3.2\n"
        "epoch 2\n  batch 0/20 loss=2.5\n  batch 10/20 loss=2.0\n",
        {"loss": [(0, 3.5), (10, 3.0), (20, 2.5), (30, 2.0)]},
    ),
    "batches of the whole training below epochs": (
        "epoch 1\nbatch 10/40 loss=3.0\nbatch 20/40 loss=2.5\nepoch 2\nbatch 30/40 loss=2.0\n",
        {"loss": [(10, 3.0), (20, 2.5), (30, 2.0)]},
    ),
    "HF without bars, with a header": (
        "  Num examples = 6,400\n  Num Epochs = 2\n  Total optimization steps = 800\n"
        + "".join(_HF.format(2.0 - at, at) for at in (0.05, 0.1, 0.15))
        + "{'eval_loss': 1.5, 'epoch': 0.15}\n",
        {"loss": [(20, 1.95), (40, 1.9), (60, 1.85)], "val_loss": [(60, 1.5)]},
    ),
    "HF without bars, whose header makes no whole steps": (
        "  Num Epochs = 3\n  Total optimization steps = 800\n"
        + "".join(_HF.format(2.0 - at, at) for at in (0.05, 0.1)),
        {"loss": [(1, 1.95), (2, 1.9)]},
    ),
    "a loss that is said in words": (
        "epoch: 0,  loss is: 2.5, acc is: 0.1\nepoch: 1,  loss is 2.0, acc is 0.2\n",
        {"loss": [(0, 2.5), (1, 2.0)]},
    ),
    "a table in columns": (
        "epoch     train_loss  valid_loss  accuracy  time    \n"
        "0         1.25        1.5         0.711730  00:29     \n"
        "1         0.75        1.0         0.766694  00:11     \n",
        {"loss": [(0, 1.25), (1, 0.75)], "val_loss": [(0, 1.5), (1, 1.0)]},
    ),
    "Paddle": (
        paddle(1, 1.0) + paddle(2, 0.5),
        {
            "loss": [(10, 1.0), (20, 1.0), (30, 0.5), (40, 0.5)],
            "val_loss": [(20, 6.0), (40, 5.5)],
        },
    ),
}


@pytest.mark.parametrize("name", _FORMS)
def test_a_line_is_read_by_what_stands_before_it(name: str) -> None:
    log, expected = _FORMS[name]
    assert read(log) == expected
    assert read(log, piece=7) == expected
    many = "".join(f"{log}--- run {run} ---\n" for run in range(3))  # as templates
    assert [value for _, value in read(many).get("loss", [])][: len(expected.get("loss", []))] == [
        value for _, value in expected.get("loss", [])
    ]


def test_lines_with_a_batch_of_an_epoch_of_unknown_length_are_counted() -> None:
    parser = LogParser()
    parser.feed(b"".join(b"epoch: %d, batch_id: 50, loss:0.8\n" % epoch for epoch in range(5)))
    assert (parser.coverage.within_epochs, parser.coverage.lines_read) == (4, 1)
    assert parser.coverage.samples


def test_a_pattern_states_the_length_of_an_epoch_or_numbers_the_lines() -> None:
    log = "epoch: 0, batch_id: 50, loss:0.8\nepoch: 1, batch_id: 50, loss:0.7\n"
    pattern = "epoch: {epoch}, batch_id: {epoch_step}, {any}loss:{loss} {epoch_steps=100}"
    assert read(log, pattern.replace("{any}", "")) == {"loss": [(50, 0.8), (150, 0.7)]}
    log = "train loss = 0.4\nloss: 0.5, better\ntrain loss = 0.3\nloss: 0.4, better\n"
    assert read(log, "train loss = {loss} {count}\nloss: {val_loss}, better", piece=9) == {
        "loss": [(1, 0.4), (2, 0.3)],
        "val_loss": [(1, 0.5), (2, 0.4)],
    }
    with pytest.raises(PatternError, match="no step") as refused:
        patterns_of("train loss = {loss}")
    assert "{count}" in refused.value.fix


def test_any_text_ends_at_its_next_words() -> None:
    (pattern,) = patterns_of("{any} a {any} b {any} c {any} d {step} loss {loss}")
    assert len(pattern.parts) == 4  # each is searched once from where the one before ends
    reading = pattern.read(b"x a 1 b 2 b 3 c 4 d 7 loss 2.5")
    assert reading is not None and (reading.step, reading.values) == (7.0, [("loss", 2.5)])
    assert pattern.read(b"a b c d " * 400 + b"loss x") is None
