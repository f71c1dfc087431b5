"""Tracebacks: their exceptions, the user's own frame, and what the program was doing."""

from __future__ import annotations

import pytest

from trainer_runtime.core.diagnosis.traceback_text import Phase, last_traceback

_SITE = "/env/lib/python3.11/site-packages"


def _traceback(*places: str, raised: str = "ValueError: bad") -> str:
    frames = "".join(
        f'  File "{file}", line 7, in {function}\n    call()\n'
        for file, _, function in (place.rpartition(":") for place in places)
    )
    return f"Traceback (most recent call last):\n{frames}{raised}\n"


def test_type_message_and_the_users_frame_are_read() -> None:
    text = _traceback(
        "train.py:<module>", "train.py:main", f"{_SITE}/torch/nn/functional.py:linear"
    )
    traceback = last_traceback(text)
    assert traceback is not None
    assert (traceback.last.type, traceback.last.message) == ("ValueError", "bad")
    frame = traceback.user_frame
    assert frame is not None and (frame.file, frame.function) == ("train.py", "main")
    assert traceback.last.frames[-1].library == "torch"


def test_the_first_of_chained_errors_is_the_root() -> None:
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"
    text = _traceback("a.py:f", raised="KeyError: 'x'") + between + _traceback("a.py:g")
    traceback = last_traceback(text)
    assert traceback is not None
    assert [error.type for error in traceback.errors] == ["KeyError", "ValueError"]
    assert traceback.first.type == "KeyError"


def test_an_earlier_traceback_that_is_not_chained_is_not_part_of_it() -> None:
    traceback = last_traceback(_traceback("a.py:f", raised="KeyError: 'x'") + _traceback("a.py:g"))
    assert traceback is not None and len(traceback.errors) == 1


@pytest.mark.parametrize(
    ("places", "phase"),
    [
        (("train.py:<module>", f"{_SITE}/trl/__init__.py:<module>"), Phase.IMPORTS),
        ((f"{_SITE}/transformers/modeling_utils.py:from_pretrained",), Phase.WEIGHTS),
        ((f"{_SITE}/transformers/trainer.py:_load_from_checkpoint",), Phase.CHECKPOINT),
        ((f"{_SITE}/torch/utils/data/_utils/collate.py:collate",), Phase.COLLATING),
        (("/usr/lib/python3.11/multiprocessing/spawn.py:_main",), Phase.WORKER_START),
        ((f"{_SITE}/torch/nn/modules/linear.py:forward",), Phase.FORWARD),
        ((f"{_SITE}/torch/optim/adamw.py:step",), Phase.OPTIMIZER),
        ((f"{_SITE}/transformers/trainer.py:evaluate", "model.py:forward"), Phase.EVALUATION),
        ((f"{_SITE}/transformers/trainer.py:_save_checkpoint",), Phase.SAVING),
        ((f"{_SITE}/huggingface_hub/hf_api.py:create_repo",), Phase.PUSHING),
        (("/usr/lib/python3.11/argparse.py:error",), Phase.ARGUMENTS),
        (("train.py:main",), None),
    ],
)
def test_the_frames_say_what_the_program_was_doing(
    places: tuple[str, ...], phase: Phase | None
) -> None:
    traceback = last_traceback(_traceback(*places))
    assert traceback is not None and traceback.phase is phase


def test_a_traceback_of_a_notebook_is_read() -> None:
    text = (
        "---------------------------------------------------------------------------\n"
        "ValueError                                Traceback (most recent call last)\n"
        "Cell In[5], line 3\n      1 x = 1\n----> 3 trainer.train()\n\n"
        f"File {_SITE}/transformers/trainer.py:2245, in Trainer.train(self)\n"
        "   2244     try:\n-> 2245         return inner()\n\nValueError: bad\n"
    )
    traceback = last_traceback(text)
    assert traceback is not None
    assert (traceback.last.type, traceback.last.message) == ("ValueError", "bad")
    assert traceback.user_frame is not None and traceback.user_frame.line == 3
