"""Our runtime for a machine that lacks it, sent ahead of a command's input and kept in memory.

So a command that only reads leaves no files behind, `__pycache__` included.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from trainmaster.home.assets import find_assets, read_package

# Placeholder for the folder of the runtime, where a machine has none.
CARRIED = "trainer_runtime (carried)"
_MODULE = ("-m", "trainer_runtime")
# `python -m trainer_runtime WORDS...` out of a file without a name, for its children too. Not from
# the working folder, which `sys.path` begins with: modules there are foreign.
_START = """\
import os,sys,zlib
n=int(sys.argv[1]);packed=b''
while len(packed)<n:
 read=os.read(0,n-len(packed));packed+=read
 if not read:sys.exit('the runtime did not arrive')
try:f=os.memfd_create('trainer_runtime')
except (AttributeError,OSError):
 import tempfile;kept=tempfile.TemporaryFile();f=kept.fileno()
left=memoryview(zlib.decompress(packed))
while left:left=left[os.write(f,left):]
path='/proc/%d/fd/%d'%(os.getpid(),f);sys.path[0]=path;sys.argv[1:2]=()
known=os.environ.get('PYTHONPATH');os.environ['PYTHONPATH']=path+(os.pathsep+known if known else '')
import runpy;runpy.run_module('trainer_runtime',run_name='__main__',alter_sys=True)
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """A command as it goes to a machine; `ahead`: what goes before all else into its input."""

    command: Sequence[str]
    folder: str
    ahead: bytes = b""


def carry(command: Sequence[str]) -> Sent:
    """`PYTHON -m trainer_runtime WORDS...` with the runtime itself."""
    python, module = command[0], tuple(command[1:3])
    if module != _MODULE:
        raise ValueError(f"{command[:3]} is not a command of the runtime")
    packed = _packed()
    start = [python, "-c", f"exec({_START!r})", str(len(packed)), *command[3:]]
    return Sent(start, "/", packed)


@cache
def runtime_files() -> Mapping[str, bytes]:
    """The modules of the runtime by their paths, as they are when they are first needed: later
    changes would not fit what this process imported."""
    return read_package(find_assets().runtime, ".py")


@cache
def _packed() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        for name, data in runtime_files().items():
            opened.writestr(zipfile.ZipInfo(name), data)
    return zlib.compress(archive.getvalue(), 6)
