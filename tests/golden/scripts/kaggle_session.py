"""One session of a Trainmaster run, as a Kaggle kernel.

All that it runs is packed into PAYLOAD, a zip by bzip2 in base64: the trainer's runtime, the run's
files, and `kernel.json`, which says what this session is to do. What the session leaves in `run/`
of the working folder is the next one's input. Lines that begin with `TM1 ` carry the run's files
to whoever has pushed this; the others are for reading.
"""

import base64
import bz2
import io
import sys
import tempfile
import zipfile

PAYLOAD = """
QlpoOTE=
"""


def main() -> int:
    try:
        payload = zipfile.ZipFile(io.BytesIO(bz2.decompress(base64.b64decode(PAYLOAD))))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        print(f"The payload of this script is damaged ({error}): push it again.", flush=True)
        return 1
    # Not in the working folder: whatever lies there becomes the kernel's output.
    with tempfile.TemporaryDirectory(prefix="trainmaster-") as folder:
        try:
            payload.extractall(folder)
        except OSError as error:
            print(f"The payload can't be unpacked into {folder}: {error}", flush=True)
            return 1
        sys.path.insert(0, folder)
        from trainer_runtime.box.kaggle.kaggle_session import run_session

        return run_session(folder)


if __name__ == "__main__":
    code = main()
    if code:
        sys.exit(code)
