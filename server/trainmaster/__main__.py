"""The program `trainmaster`, and `python3 -m trainmaster` where that is not on the path."""

import gc

# A short command creates less than it could collect, most of it while it is imported; what stays
# running collects a few MB later.
gc.set_threshold(50_000)

from trainmaster.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
