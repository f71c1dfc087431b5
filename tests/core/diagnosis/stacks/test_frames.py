"""Parsing of stack dumps: output of faulthandler and py-spy, truncated and hostile text."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_runtime.core.diagnosis.stacks.frames import Frame, read_stacks
from trainer_runtime.core.diagnosis.stacks.places import Place, locate

_SITE = "/opt/venv/lib/python3.11/site-packages"
_LOADER = f"""\
Thread 0x00007f380fc296c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/multiprocessing/queues.py", line 231 in _feed
  File "/usr/lib/python3.11/threading.py", line 982 in run
  File "/usr/lib/python3.11/threading.py", line 1045 in _bootstrap_inner
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f3831c06b80 (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 415 in select
  File "/usr/lib/python3.11/multiprocessing/connection.py", line 947 in wait
  File "/usr/lib/python3.11/multiprocessing/queues.py", line 113 in get
  File "{_SITE}/torch/utils/data/dataloader.py", line 1291 in _try_get_data
  File "{_SITE}/torch/utils/data/dataloader.py", line 725 in __next__
  File "/home/me/train.py", line 9 in main
  File "/home/me/train.py", line 10 in <module>
"""
_NEWER = """\
Thread 0x00007f380fc296c0 [writer] (most recent call first):
  File "/home/me/trainer_runtime/train/checkpoints/folder.py", line 50 in write_folder

Current thread 0x00007f3831c06b80 [python] (most recent call first):
  File "/home/me/train.py", line 10 in <module>

Current thread's C stack trace (most recent call first):
  Binary file "/usr/bin/python3.14", at _Py_DumpStack+0x46 [0x5a1]
"""


def test_the_main_thread_comes_first_and_shows_that_it_waits_for_data() -> None:
    main, feeder = read_stacks(_LOADER)
    assert main.current and main.frames[-1] == Frame("/home/me/train.py", 10, "<module>")
    assert [frame.function for frame in feeder.frames][:2] == ["wait", "_feed"]
    found = locate(main.frames)
    assert found.place is Place.DATA
    assert found.call is not None and found.call.short == "main (me/train.py:9)"
    assert found.sign is not None
    assert found.sign.short == "_try_get_data (torch/utils/data/dataloader.py:1291)"


def test_names_of_threads_and_c_stacks_of_newer_pythons_are_read_past() -> None:
    main, writer = read_stacks(_NEWER)
    assert (main.name, len(main.frames)) == ("python", 1)
    assert (writer.name, writer.frames[0].function) == ("writer", "write_folder")


def test_py_spys_json_reads_as_the_same_frames() -> None:
    frames = [
        {"name": "Queue.get", "filename": "/usr/lib/python3.11/multiprocessing/queues.py"},
        {"name": "Outer.<locals>.step", "filename": "/home/me/train.py", "line": 4},
    ]
    threads = [
        {"pid": 7, "os_thread_id": 9, "thread_name": "Thread-1", "frames": frames[:1]},
        {"pid": 7, "os_thread_id": 7, "thread_name": "MainThread", "frames": frames},
    ]
    main, other = read_stacks(json.dumps(threads))
    assert main.current and [frame.function for frame in main.frames] == ["get", "step"]
    assert (main.frames[0].line, main.frames[1].line) == (0, 4)
    assert not other.is_main


@pytest.mark.parametrize(
    ("file", "function", "place"),
    [
        (f"{_SITE}/torch/distributed/distributed_c10d.py", "all_reduce", Place.COLLECTIVE),
        (f"{_SITE}/torch/distributed/distributed_c10d.py", "barrier", Place.COLLECTIVE),
        (
            f"{_SITE}/torch/distributed/distributed_c10d.py",
            "init_process_group",
            Place.RENDEZVOUS,
        ),
        (f"{_SITE}/torch/distributed/rendezvous.py", "_env_rendezvous_handler", Place.RENDEZVOUS),
        (f"{_SITE}/deepspeed/comm/torch.py", "all_gather_into_tensor", Place.COLLECTIVE),
        (f"{_SITE}/torch/utils/data/_utils/fetch.py", "fetch", Place.DATA),
        (f"{_SITE}/datasets/arrow_dataset.py", "_getitem", Place.DATA),
        (f"{_SITE}/torch/serialization.py", "_save", Place.CHECKPOINT),
        (f"{_SITE}/torch/distributed/checkpoint/filesystem.py", "_write_item", Place.CHECKPOINT),
        (f"{_SITE}/transformers/trainer.py", "_save_checkpoint", Place.CHECKPOINT),
        ("/run/trainer_runtime/train/checkpoints/checkpointer.py", "save_last", Place.CHECKPOINT),
        ("/run/trainer_runtime/train/data/batches.py", "next_batch", Place.DATA),
        (f"{_SITE}/torch/_inductor/compile_fx.py", "compile_fx", Place.COMPILE),
        (f"{_SITE}/torch/autograd/graph.py", "_engine_run_backward", Place.DEVICE),
        (f"{_SITE}/torch/serialization.py", "load", Place.OTHER),
        ("/data/datasets/gpt/train.py", "train_step", Place.OTHER),
        (f"{_SITE}/torch/nn/modules/linear.py", "forward", Place.OTHER),
    ],
)
def test_a_frame_shows_the_activity_of_its_thread(file: str, function: str, place: Place) -> None:
    stack = (Frame(file, 1, function), Frame("/home/me/train.py", 3, "<module>"))
    assert locate(stack).place is place


def test_names_can_carry_no_control_characters_and_no_lengths() -> None:
    text = 'Current thread 0x01 (most recent call first):\n  File "/a\x1b[2Jb\u202e", line 1 in '
    (thread,) = read_stacks(text + "f" * 5000 + "\n")
    (frame,) = thread.frames
    assert frame.file == "/ab" and len(frame.function) <= 120


@given(st.data())
def test_any_cut_of_a_dump_is_read_without_a_wrong_frame(data: st.DataObject) -> None:
    whole = {frame for thread in read_stacks(_LOADER) for frame in thread.frames}
    end = data.draw(st.integers(0, len(_LOADER)))
    cut = _LOADER[: _LOADER.rfind("\n", 0, end) + 1]
    assert {frame for thread in read_stacks(cut) for frame in thread.frames} <= whole


@given(st.text(alphabet=string.printable + "[]{}\"'\x1b\x00", max_size=300))
def test_junk_has_no_stack(text: str) -> None:
    for prefix in ("", "[", "Current thread 0x00 (most recent call first):\n"):
        read_stacks(prefix + text)
