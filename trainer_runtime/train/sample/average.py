"""`python -m trainer_runtime.train.sample.average CONFIG REQUEST`, in the run's folder: writes the
average of checkpoints.

REQUEST is the file of an `AverageRequest`. The last line of the output is the `AverageAnswer`.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from pathlib import Path

from trainer_runtime.core.answers.averaged import AverageRequest
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.checkpoints.averaged_folder import write_average

# A training may run beside it.
_NICE = 5


def main(config_path: str, request_path: str) -> int:
    """Average what is asked for; the exit code."""
    request = AverageRequest.of(decode_fields(Path(request_path).read_bytes(), "the request"))
    signal.alarm(math.ceil(request.within_s))  # ends the process, wherever it is then
    os.nice(_NICE)
    try:
        config = RunConfig.parse(Path(config_path).read_bytes(), config_path)
        answer = write_average(config, request)
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr, flush=True)
        return ExitCode.UNUSABLE
    print(json.dumps(answer.to_dict()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
