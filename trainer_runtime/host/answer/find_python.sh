# Finds an interpreter for the runtime: `sh -s`, with this text as its input.
#
# Prints a line `python VERDICT VERSION PATH LACKS` (tabs between) for each one that it tried: good,
# old (before 3.10) or incomplete (LACKS part of the standard library). Ends with the first good
# one, exit code 0; with 1 where there is none. Those that are tested most come first, the PATH
# before the folders that a login without a terminal often lacks.

set -u
# A module in the login folder must not pass for one of the standard library.
cd /
home=${HOME:-/root}

probe='
import sys
lacks = "-"
try:
    import argparse, ctypes, fcntl, hashlib, json, select, socket, subprocess, tempfile, uuid
except ImportError:
    lacks = str(sys.exc_info()[1])
verdict = "old" if sys.version_info < (3, 10) else "good" if lacks == "-" else "incomplete"
version = ".".join(str(part) for part in sys.version_info[:3])
path = sys.executable or sys.argv[1]
sys.stdout.write("\t".join(("\npython", verdict, version, path, lacks)) + "\n")
sys.exit(0 if verdict == "good" else 1)
'

try() {
    # What a shell takes from standard input next is this text: it is not the interpreter's.
    "$1" -c "$probe" "$1" </dev/null 2>/dev/null && exit 0
}

for name in python3.13 python3.12 python3.11 python3.10 python3.14 python3 python; do
    command -v "$name" >/dev/null 2>&1 && try "$name"
done
for folder in /usr/bin /usr/local/bin "$home/.local/bin" \
    "$home/miniconda3/bin" "$home/miniforge3/bin" "$home/mambaforge/bin" "$home/anaconda3/bin" \
    /opt/conda/bin /opt/miniconda3/bin /opt/python*/bin /opt/python/*/bin /venv/main/bin; do
    for name in python3.13 python3.12 python3.11 python3.10 python3.14 python3; do
        [ -x "$folder/$name" ] && try "$folder/$name"
    done
done
for minor in 13 12 11 10 14; do
    for path in "${PYENV_ROOT:-$home/.pyenv}/versions/3.$minor".*/bin/python3 \
        "$home/.local/share/uv/python/cpython-3.$minor".*/bin/python3; do
        [ -x "$path" ] && try "$path"
    done
done
exit 1
