"""How a program is installed, configured and started."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording
from trainer_runtime.core.diagnosis.traceback_text import Phase

KINDS = (
    Kind(
        "script_missing",
        "The program to start is not where it is searched for.",
        ("Check the path as seen from the run's folder, and that git does not leave it out.",),
        (
            Wording(
                r"\bcan't open file '[^']{1,300}': \[Errno 2\]"
                r"|\b(?:ba|z|da)?sh: (?:line \d+: )?[\w./-]{1,200}\.(?:sh|py): No such file or",
                "python: can't open file '/app/train.py': [Errno 2] No such file or directory",
                "Python",
            ),
        ),
    ),
    Kind(
        "program_missing",
        "A command that the script calls is not installed, or not on the PATH.",
        (
            "Install it, or start it as `python -m ...`; activate the environment in the script "
            "itself, since a job does not read your shell's settings.",
        ),
        (
            Wording(
                r": command not found\s*$|\bsh: \d+: [\w./-]{1,80}: not found\s*$"
                r"|\bis not recognized as an internal or external command"
                r"|/usr/bin/env: .?\w+.?: No such file or directory"
                r"|\bexec: \"[\w./-]{1,80}\": executable file not found in \$PATH"
                r"|\bexecve\(\): [\w./-]{1,80}: No such file or directory",
                "train.sh: line 3: torchrun: command not found",
                "bash; Slurm, slurmstepd",
                unless=r"\b(?:gcc|g\+\+|cc|c\+\+|nvcc|ninja)(?:-\d+)?: (?:command )?not found|\\r'",
            ),
        ),
    ),
    Kind(
        "windows_line_ends",
        "A script has the line ends of Windows (CRLF): the shell takes the carriage return (\\r) "
        "for a part of each word.",
        (
            "Convert it: `dos2unix FILE`, or `sed -i 's/\\r$//' FILE`; git converts by "
            "core.autocrlf, and keeps by `*.sh eol=lf` in .gitattributes.",
        ),
        (
            Wording(
                r"\$'[^']{0,200}\\r'?: (?:command not found|No such file|Permission denied)"
                r"|\$'\\r': \w|\bcan't open file '[^']{1,300}\\r'"
                r"|/usr/bin/env: .{1,60}\\r.?: No such file"
                r"|\bbad interpreter: .{0,20}\^M|\bpython\d?\^M",
                "run.sh: line 2: $'\\r': command not found",
                "bash; GNU coreutils, env",
            ),
        ),
        instead_of=("program_missing", "script_missing"),
    ),
    Kind(
        "conda_not_initialised",
        "conda can't activate an environment in a script, or the environment does not exist.",
        (
            'Begin the script with `eval "$(conda shell.bash hook)"`, or call the environment\'s '
            "python by its path; `conda env list` shows the names.",
        ),
        (
            Wording(
                r"\bYour shell has not been properly configured to use 'conda activate'"
                r"|\bRun 'conda init' before 'conda activate'"
                r"|\bEnvironmentNameNotFound: Could not find conda environment",
                "CommandNotFoundError: Your shell has not been properly configured to use 'conda "
                "activate'.",
                "conda",
            ),
        ),
    ),
    Kind(
        "module_unknown",
        "A module that the job loads does not exist on this cluster.",
        ("`module avail` lists what there is; name it with its version.",),
        (
            Wording(
                r"\bThe following module\(s\) are unknown|\bModuleCmd_Load\.c.{0,40}Unable to"
                r"|\bERROR: Unable to locate a modulefile",
                "Lmod has detected the following error: The following module(s) are unknown: "
                '"cuda/12.9"',
                "Lmod; Environment Modules",
            ),
        ),
    ),
    Kind(
        "package_not_offered",
        "The installer finds no version of a package for this Python and system.",
        (
            "Check the name and version, and this machine's Python and architecture: older or "
            "newer ones may have no build. Behind a proxy or offline, name an index that is "
            "reachable.",
        ),
        (
            Wording(
                r"\bERROR: No matching distribution found for"
                r"|\bCould not find a version that satisfies the requirement"
                r"|\bPackagesNotFoundError: The following packages are",
                "ERROR: No matching distribution found for flash-attn==9.9",
                "pip; conda",
            ),
        ),
    ),
    Kind(
        "build_without_torch",
        "A package was built in isolation, where the installed PyTorch can't be seen.",
        (
            "Install PyTorch first, then the package with --no-build-isolation, or take a wheel "
            "that fits.",
        ),
        (
            Wording(
                r"\bNo module named 'torch'",
                "  Getting requirements to build wheel did not run successfully.\n"
                "      ModuleNotFoundError: No module named 'torch'",
                "pip; flash-attn, setup.py",
                after=r"requirements to build wheel|build_wheel|metadata \(setup\.py\)|setup\.py",
            ),
        ),
        instead_of=("package_missing", "wheel_failed"),
    ),
    Kind(
        "wheel_failed",
        "A package could not be built from its source.",
        (
            "Take a version that has a ready wheel for this Python and CUDA; else install the "
            "compiler and headers that the lines above name.",
        ),
        (
            Wording(
                r"\bERROR: Failed building wheel for|\bmetadata-generation-failed\b"
                r"|\bFailed to build installable wheels for some",
                "ERROR: Failed building wheel for causal-conv1d",
                "pip",
                confidence=0.8,
            ),
        ),
        follows=("compiler_missing", "host_oom", "disk_full"),
        confidence=0.8,
    ),
    Kind(
        "environment_managed",
        "The system's own Python refuses packages of pip.",
        ("Make an environment (`python3 -m venv`, uv) and install there.",),
        (
            Wording(
                r"\berror: externally-managed-environment",
                "error: externally-managed-environment",
                "pip; PEP 668",
            ),
        ),
    ),
    Kind(
        "optional_package_missing",
        "A feature that is switched on needs a package that is not installed.",
        ("Install the package that the message names, or switch the feature off.",),
        (
            Wording(
                r"\b\w*Error: .{0,240}"
                r"(?:[Pp]lease (?:run|install)|requires|[Ii]nstall it with)"
                r".{0,60}\bpip3? install\b(?: -U| --upgrade)?(?: \W?(?P<package>[\w-]{1,40}))?"
                r"|\bImportError: .{0,160}\brequires? .{1,80}: .pip install"
                r"|\bImportError: .{0,120} is not (?:installed|available)\.? .{0,60}\bpip install"
                r"|\brequires the (?:following packages that were|[\w. ]{1,40} library but it was)"
                r" not found in your environment",
                "ImportError: Using `load_in_4bit=True` requires Abc: `pip install abc`",
                "transformers; TRL; accelerate",
                unless=r"(?i)warn|bitsandbytes|sentencepiece|tiktoken|protobuf",
                confidence=0.88,
            ),
            Wording(
                r"\bImportError: .{0,200}\b[Pp]lease install [`'\"]?(?P<package>[\w-]{1,40})"
                r"|\b(?:Value|Import)Error: .{0,240}\brequires "
                r"[`'\"](?P<package_other>[\w-]{1,40})[`'\"]",
                "ImportError: To support decoding audio data, please install 'torchcodec'.",
                "datasets, features/audio.py; transformers",
                unless=r"(?i)warn|version|bitsandbytes|sentencepiece|tiktoken|protobuf",
                confidence=0.8,
            ),
        ),
        instead_of=("package_missing",),
    ),
    Kind(
        "own_import_failed",
        "A module of the program itself is not found: it was started from another folder, or not "
        "as a package.",
        (
            "Start it from the folder that holds the package as `python -m package.module`, or "
            "install it (`pip install -e .`).",
        ),
        (
            Wording(
                r"\battempted relative import with no known parent package"
                r"|\battempted relative import beyond top-level package",
                "ImportError: attempted relative import with no known parent package",
                "Python's import system",
            ),
            Wording(
                r"\bNo module named '(?:src|utils?|models?|data|dataset|configs?|scripts|lib|common"
                r"|modules|trainer|training|core|helpers?|losses|networks?|tools)(?:\.[\w.]+)?'",
                "ModuleNotFoundError: No module named 'utils.misc'",
                "Python's import system; what programs call their own folders",
                confidence=0.8,
            ),
            Wording(
                r"\bpartially initialized module '[\w.]+' (?:has no attribute|from)"
                r"|\bcannot import name '\w+' from partially initialized module",
                "ImportError: cannot import name 'a' from partially initialized module 'b' (most "
                "likely due to a circular import)",
                "Python's import system",
                confidence=0.85,
            ),
        ),
        instead_of=("package_mismatch", "package_missing"),
    ),
    Kind(
        "own_file_shadows",
        "A file of the program has the name of a library, and is imported in its place.",
        ("Rename the file (and remove its __pycache__); the message names its path.",),
        (
            Wording(
                r"\bpartially initialized module '(\w+)'.{0,160} \((?!\S*-packages/)"
                r"\S*/\1(?:/__init__)?\.py\)"
                r"|\bconsider renaming '[^']{1,300}' (?:since|if) it has the same name"
                r"|\bcannot import name '\w+' from '(datasets|transformers|torch|evaluate|trl|peft"
                r"|accelerate|tokenizers|wandb|typing|logging|random|queue|types|json)'"
                r" \((?!\S*(?:-packages/|/lib/python))\S*/\2(?:/__init__)?\.py\)",
                "ImportError: cannot import name 'run' from partially initialized module 'ray' "
                "(most likely due to a circular import) (/home/a/ray.py)",
                "Python's import system",
            ),
        ),
        instead_of=("own_import_failed", "package_mismatch", "transformers_version"),
    ),
    Kind(
        "system_library_missing",
        "A library of the system is not installed.",
        (
            "Install it by the system's package manager (libgl1, libsndfile1, libibverbs1, "
            "libnuma1, openmpi), or use an image that has it.",
        ),
        (
            Wording(
                r"\blib(?:GL|sndfile|ibverbs|mpi\w*|numa|gomp|glib-2|SM|Xext|stdc\+\+|python3[\d.]*"
                r"|z|ssl|crypto|jpeg|tbb|hdf5|rdmacm|mkl\w*|openblas\w*|omp5?|atomic|ffi|cairo)"
                r"\.(?:so)?[\w.-]*: cannot open shared object file"
                r"|\bsndfile library not found",
                "ImportError: libGL.so.1: cannot open shared object file: No such file or "
                "directory",
                "glibc's loader",
            ),
        ),
        instead_of=("package_missing",),
    ),
    Kind(
        "syntax_error",
        "The program's source is not valid Python, or not of this Python's version.",
        ("See the line in the evidence; `python -m py_compile FILE` checks it before a run.",),
        (
            Wording(
                r"^(?:SyntaxError|IndentationError|TabError): ",
                "File \"train.py\", line 3\n    x = (1\n        ^\nSyntaxError: '(' was never "
                "closed",
                "Python",
                confidence=0.88,
            ),
        ),
    ),
    Kind(
        "config_malformed",
        "A file of settings can't be read: its YAML, JSON or TOML is malformed.",
        ("See line and column in the evidence: indentation, a tab, or an unquoted colon.",),
        (
            Wording(
                r"\byaml\.(?:scanner\.ScannerError|parser\.ParserError|constructor\.\w+|reader\.\w+)"
                r"|\bTOMLDecodeError: |\bruamel\.yaml\.\w+\.\w+Error",
                "yaml.scanner.ScannerError: mapping values are not allowed here",
                "PyYAML",
                unless=r"(?i)warn",
            ),
        ),
        instead_of=("data_malformed",),
    ),
    Kind(
        "config_invalid",
        "The settings have a value or a name that the program does not take.",
        ("Correct the fields that the message lists; the program's documentation has the names.",),
        (
            Wording(
                r"\b\d+ validation errors? for \w+|\bSome keys are not used by",
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for TrainConfig",
                "pydantic; transformers, hf_argparser.py",
                confidence=0.85,
            ),
        ),
        confidence=0.85,
    ),
    Kind(
        "native_crash",
        "Compiled code crashed (an invalid memory access), without a Python error.",
        (
            "Run once with `python -X faulthandler` to see where; the newest or least matching "
            "extension (its build against PyTorch, CUDA, glibc) is the usual reason.",
        ),
        (
            Wording(
                r"^(?:\S+: line \d+:\s+\d+ )?Segmentation fault\b"
                r"|\bFatal Python error: Segmentation fault|^\s*exitcode\s+: -11\b"
                r"|\bterminated with signal SIGSEGV|\bSignal: Segmentation fault \(11\)"
                r"|^(?:double free or corruption|free\(\): invalid|malloc\(\): |corrupted size)"
                r"|\bSignal 11 \(SIGSEGV\)",
                "Fatal Python error: Segmentation fault",
                "Python, faulthandler; glibc",
                confidence=0.8,
            ),
        ),
        confidence=0.8,
        ends=False,
    ),
    Kind(
        "openmp_twice",
        "Two copies of OpenMP are loaded into one process.",
        (
            "Install NumPy, MKL and PyTorch from one source (all by conda or all by pip); "
            "KMP_DUPLICATE_LIB_OK=TRUE only hides it.",
        ),
        (
            Wording(
                r"\bOMP: Error #15: Initializing|\bmkl-service \+ Intel\(R\) MKL: "
                r"MKL_THREADING_LAYER=INTEL is incompatible",
                "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized",
                "LLVM OpenMP; mkl-service",
            ),
        ),
    ),
    Kind(
        "windows_library",
        "Windows can't load a library of PyTorch, or its paging file is too small for it.",
        (
            "Install the Visual C++ redistributable; WinError 1455: enlarge the paging file or use "
            "fewer workers.",
        ),
        (
            Wording(
                r"\[WinError (?:126|127|182|193|1114|1455)\]|\bThe paging file is too small for",
                "OSError: [WinError 1455] The paging file is too small for this operation to "
                "complete",
                "Windows' loader",
            ),
        ),
    ),
    Kind(
        "libuv_missing",
        "This build of PyTorch has no libuv, which the rendezvous uses by default.",
        ("Set USE_LIBUV=0 (or torchrun --rdzv-conf use_libuv=0); usual on Windows.",),
        (
            Wording(
                r"\buse_libuv was requested but PyTorch was built without libuv",
                "torch.distributed.DistStoreError: use_libuv was requested but PyTorch was built "
                "without libuv support",
                "PyTorch, torch/distributed/rendezvous.py",
            ),
        ),
        instead_of=("rendezvous_unreachable",),
    ),
    Kind(
        "recursion_limit",
        "A function calls itself without end.",
        ("See the repeated frames above: a wrapper that was applied twice is the usual reason.",),
        (
            Wording(
                r"\bRecursionError: maximum recursion depth exceeded",
                "RecursionError: maximum recursion depth exceeded while calling a Python object",
                "Python",
                not_phases=(Phase.SAVING,),
            ),
        ),
    ),
)
