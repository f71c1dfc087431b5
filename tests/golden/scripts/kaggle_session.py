"""One session of a Trainmaster run, as a Kaggle kernel.

PAYLOAD, a tar archive by bzip2 in base85, holds everything that it runs: the runtime, the run's
files, and `kernel.json`, which describes this session. The session's output in `run/` of the
working folder is the next session's input. Log lines that begin with `TM1 ` carry the run's files
to the Trainmaster client; the other lines are for people.
"""

import base64
import bz2
import io
import sys
import tarfile
import tempfile

PAYLOAD = """
QlpoOTE=
"""


def main() -> int:
    try:
        packed = base64.b85decode("".join(PAYLOAD.split()))
        archive = io.BytesIO(bz2.decompress(packed))
    except (OSError, ValueError) as error:
        print(f"The payload of this script is damaged ({error}): push it again.", flush=True)
        return 1
    # Not in the working folder: whatever lies there becomes the kernel's output.
    with tempfile.TemporaryDirectory(prefix="trainmaster-") as folder:
        try:
            with tarfile.open(fileobj=archive) as payload:
                payload.extraction_filter = getattr(tarfile, "data_filter", None)  # since 3.11.4
                payload.extractall(folder)
        except (OSError, tarfile.TarError) as error:
            print(f"The payload can't be unpacked into {folder}: {error}", flush=True)
            return 1
        sys.path.insert(0, folder)
        from trainer_runtime.host.kaggle.kaggle_session import run_session

        return run_session(folder)


if __name__ == "__main__":
    code = main()
    if code:
        sys.exit(code)
