"""Packages whose versions don't fit each other, the machine or the files that are read."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording
from trainer_runtime.core.protocol.command import option

_PIN = (
    "Install versions that go together (`environment: auto` does), or launch again with "
    f"{option('--set', 'environment.requirements=FILE')}."
)
KINDS = (
    Kind(
        "numpy_versions",
        "NumPy 1 and NumPy 2 meet: a package or a file was made with the other one.",
        (
            "Install the NumPy that the other packages were built for (`numpy<2`, or newer builds "
            "of them).",
            "A file that was pickled with NumPy 2 is read by NumPy 2 only.",
        ),
        (
            Wording(
                r"\bNo module named 'numpy\._core(?:\.\w+)*'"
                r"|\bA module that was compiled using NumPy 1\.x cannot be run in\b"
                r"|\bRuntimeError: Numpy is not available"
                r"|\bnumpy\.core\.multiarray failed to import"
                r"|\bUnable to avoid copy while creating an array as requested"
                r"|\bnumpy\.dtype size changed, may indicate binary incompatibility"
                r"|\bmodule 'numpy' has no attribute '(?:bool|int|float|object|bool8|float_|Inf)'",
                "ModuleNotFoundError: No module named 'numpy._core'",
                "NumPy, numpy/core/_multiarray_umath.py; pickle",
            ),
        ),
        instead_of=("package_missing", "package_mismatch"),
    ),
    Kind(
        "torch_version",
        "A package needs a part of PyTorch that the installed version does not have.",
        ("Install a PyTorch that fits the package, or an older package.", _PIN),
        (
            Wording(
                r"\bNo module named 'torch\.[\w.]+'"
                r"|\bcannot import name '\w+' from 'torch[\w.]*'"
                r"|\bmodule 'torch(?:\.\w+)*' has no attribute '\w+'"
                r"|\brequires? (?:users to upgrade |you to have |the |a )?(?:PyTorch|torch)"
                r" ?(?:version )?(?:>=|to at least v?)\d",
                "ModuleNotFoundError: No module named 'torch._dropped'",
                "Python's import system",
                unless=r"(?i)warn|has no attribute '_cuda",
            ),
        ),
        instead_of=("package_missing", "package_mismatch", "checkpoint_corrupt"),
    ),
    Kind(
        "python_version",
        "A module of Python's standard library is not in this version of Python.",
        (
            "Use a Python that the program was written for (`distutils` and `imp` left in 3.12), "
            "or a newer version of the package that imports it; setuptools brings distutils back.",
        ),
        (
            Wording(
                r"\bNo module named '(?:distutils|imp|asyncore|cgi|pipes|telnetlib|lib2to3)"
                r"(?:\.[\w.]+)?'",
                "ModuleNotFoundError: No module named 'distutils'",
                "Python's import system",
            ),
        ),
        instead_of=("package_missing",),
    ),
    Kind(
        "accelerate_version",
        "transformers and accelerate (or DeepSpeed) are of versions that don't go together.",
        (
            "Upgrade accelerate to the version that this transformers asks for, or take an older "
            "transformers.",
            _PIN,
        ),
        (
            Wording(
                r"'(?:DeepSpeedZeroOptimizer\w*|AcceleratedOptimizer|Accelerated\w+|\w*Adam\w*)' "
                r"object has no attribute '(?:train|eval)'"
                r"|'Accelerator' object has no attribute '\w+'"
                r"|\bAccelerator\.\w+\(\) got an unexpected keyword argument"
                r"|\bUsing the .{0,20}Trainer.{0,20} with .{0,20}PyTorch.{0,20} requires "
                r".accelerate",
                "AttributeError: 'DeepSpeedZeroOptimizer' object has no attribute 'train'",
                "accelerate, optimizer.py; transformers, trainer.py",
            ),
        ),
        instead_of=("package_mismatch", "package_missing", "library_versions"),
    ),
    Kind(
        "library_versions",
        "A function of a library is called as another version of it expects: libraries, or the "
        "program and a library, are of versions that don't go together.",
        (
            "See which library the innermost frames call, and install the version that the "
            "calling one asks for; undo the newest upgrade first.",
            _PIN,
        ),
        (
            Wording(
                r"\bTypeError: \w[\w.]{0,120}\(\) (?:got an unexpected keyword argument"
                r"|takes (?:from )?\d+ (?:to \d+ )?positional arguments? but"
                r"|missing \d+ required positional arguments?)",
                "Traceback (most recent call last):\n"
                '  File "/env/site-packages/unsloth/models/llama.py", line 9, in _inner\n'
                "TypeError: _get_batch_samples() takes 3 positional arguments but 4 were given",
                "unsloth, issue 2148",
                after=r"(?:site|dist)-packages/(?P<package>\w+)[^\n]{0,300}\n"
                r"(?:(?![^\n]{0,80}File \")[^\n]{0,300}\n){0,3}[^\n]{0,80}TypeError: [^\n]*$",
                unless=r"(?:Config|Arguments|Trainer)\.__init__|\bforward\(",
                confidence=0.7,
            ),
        ),
        confidence=0.7,
    ),
    Kind(
        "peft_too_old",
        "The adapter's settings were written by a newer PEFT than the installed one.",
        (
            "Upgrade peft to the version that saved the adapter, or take the name that the "
            "message says out of adapter_config.json if it has its default there.",
        ),
        (
            Wording(
                r"\b(?:Lora|AdaLora|LoHa|LoKr|IA3|Oft|Boft|PromptTuning|Prefix\w*|Vera)Config"
                r"\.__init__\(\) got an unexpected keyword argument",
                'File "/env/site-packages/peft/config.py", line 109, in from_peft_type\n'
                "TypeError: LoraConfig.__init__() got an unexpected keyword argument 'eva'",
                "PEFT, config.py; its page on troubleshooting",
                after=r"\bpeft/config\.py\b",
            ),
        ),
        instead_of=("package_mismatch", "library_versions"),
    ),
    Kind(
        "transformers_version",
        "A program and the installed transformers, trl or peft don't fit: a name or an argument "
        "has moved.",
        ("Install the version that the program was written for (see its requirements).", _PIN),
        (
            Wording(
                r"\w*ForCausalLM\.__init__\(\) got an unexpected keyword argument"
                r"|'DynamicCache' object has no attribute '\w+'",
                "TypeError: LlamaForCausalLM.__init__() got an unexpected keyword argument 'fa'",
                "transformers, modeling_utils.py",
                unless=r"(?i)\bwarn",
            ),
            Wording(
                r"'\w+(?:Model|ForCausalLM|Attention|Config|Cache|Tokenizer|TokenizerFast|Trainer)'"
                r" object has no attribute '\w+'",
                "AttributeError: 'LlamaModel' object has no attribute '_prepare_mask'",
                "transformers, models",
                confidence=0.7,
            ),
        ),
        instead_of=("library_versions", "model_arguments"),
        confidence=0.85,
    ),
    Kind(
        "model_too_new",
        "The installed transformers (or vLLM) does not know this model's architecture: it is "
        "newer, or comes with code of its own.",
        (
            "Upgrade transformers to a version that has the architecture.",
            "Where the model brings its own code, read it first; then trust_remote_code.",
        ),
        (
            Wording(
                r"\bbut Transformers does not recognize this architecture"
                r"|\bModel architectures \[.{1,120}\] are not supported for now"
                r"|\bUnrecognized configuration class .{1,200} for this kind of AutoModel"
                r"|\bKeyError: '(?:qwen\w*|llama\w*|mistral\w*|gemma\w*|phi\w*|deepseek\w*|olmo\w*"
                r"|mixtral|granite\w*|smollm\w*|glm\w*)'\s*$"
                r"|.rope_scaling. must be a dictionary with"
                r"|\bUnrecognized model in .{1,200}Should have a .model_type. key",
                "ValueError: The checkpoint you are trying to load has model type `abc3` but "
                "Transformers does not recognize this architecture.",
                "transformers, models/auto/configuration_auto.py",
            ),
        ),
    ),
    Kind(
        "remote_code_refused",
        "The model or data set brings code of its own, which is not run without consent.",
        (
            "Read that code; then allow it (trust_remote_code), or use a model without it.",
            "datasets from version 4 on runs no scripts: convert the data to Parquet or JSON.",
        ),
        (
            Wording(
                r"\btrust_remote_code=True. to (?:remove this error|allow|execute)"
                r"|\brequires you to execute the (?:configuration|modeling|tokenizer) file"
                r"|\bcontains custom code which must be executed to correctly load"
                r"|\bDataset scripts are no longer supported, but found",
                "ValueError: The repository for abc/model contains custom code which must be "
                "executed to correctly load the model.",
                "transformers, dynamic_module_utils.py",
                unless=r"(?i)warn",
            ),
        ),
    ),
    Kind(
        "tokenizer_too_new",
        "The tokenizer's file was written by a newer tokenizers than the installed one.",
        ("Upgrade tokenizers and transformers to the versions that saved it.", _PIN),
        (
            Wording(
                r"\bdata did not match any variant of untagged enum \w+"
                r"|\bTokenizer class \w+ does not exist or is not currently imported",
                "Exception: data did not match any variant of untagged enum ModelWrapper at line "
                "250614 column 3",
                "tokenizers, tokenizers/src/models/mod.rs",
            ),
        ),
        instead_of=("checkpoint_corrupt",),
    ),
    Kind(
        "tokenizer_backend_missing",
        "The tokenizer needs a package that is not installed (sentencepiece, tiktoken, protobuf).",
        ("Install sentencepiece, tiktoken and protobuf on the host.", _PIN),
        (
            Wording(
                r"\brequires the (?:SentencePiece|tiktoken|protobuf) library but it was not found"
                r"|\bCouldn't instantiate the backend tokenizer from one of"
                r"|\bCannot instantiate this tokenizer from a slow version",
                "ImportError: LlamaTokenizer requires the SentencePiece library but it was not "
                "found in your environment.",
                "transformers, utils/import_utils.py",
            ),
        ),
        instead_of=("package_missing",),
    ),
    Kind(
        "protobuf_version",
        "The installed protobuf is too new for generated code of another package.",
        ("Install protobuf 3.20 or a newer version of that package.",),
        (
            Wording(
                r"\bDescriptors cannot (?:not )?be created directly",
                "TypeError: Descriptors cannot be created directly.",
                "protobuf, python/google/protobuf/descriptor.py",
            ),
        ),
    ),
    Kind(
        "cuda_library_shadowed",
        "The loader took a CUDA library of another version than PyTorch's own: LD_LIBRARY_PATH or "
        "a second installation shadows it.",
        (
            "Unset LD_LIBRARY_PATH, or leave CUDA's folders out of it.",
            "Reinstall PyTorch and its nvidia-* packages in a fresh environment.",
        ),
        (
            Wording(
                r"(?:libcu\w+|libnv\w+|libnccl|libcudnn\w*|libtorch\w*)\.so[\w.]*: "
                r"undefined symbol: |\bundefined symbol: (?:ncclCommWindow\w*"
                r"|\w*nvJitLink\w*|cublas\w+|cudnn\w+)"
                r"|\bCould not load library libcudnn\w*"
                r"|\bUnable to load any of \{libcudnn"
                r"|\bnvrtc: error: failed to open",
                "ImportError: /env/nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: "
                "__nvJitLinkComplete_12_4, version libnvJitLink.so.12",
                "glibc's loader",
                unless=r"flash_attn|bitsandbytes|iJIT_NotifyEvent",
            ),
            Wording(
                r"\blib(?:cu\w+|nv\w+|nccl)\.so[\w.]*: cannot open shared object file",
                "OSError: libcudart.so.12: cannot open shared object file: No such file or "
                "directory",
                "glibc's loader",
                unless=r"flash_attn|bitsandbytes|(?i:warn)",
            ),
        ),
        instead_of=("package_missing",),
    ),
    Kind(
        "torch_abi_mismatch",
        "An extension was built for another version of PyTorch.",
        ("Reinstall it for the installed PyTorch (xformers, apex, torchvision, causal-conv1d).",),
        (
            Wording(
                r"\.so: undefined symbol: _Z\w+",
                "ImportError: /env/xformers/_C.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
                "glibc's loader",
                unless=r"flash_attn|bitsandbytes",
            ),
            Wording(
                r"\bxFormers can't load C\+\+/CUDA extensions",
                "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions.",
                "xformers, _cpp_lib.py",
                confidence=0.7,
            ),
        ),
        confidence=0.85,
    ),
    Kind(
        "glibc_too_old",
        "A program needs a newer C library (GLIBC) or C++ library (GLIBCXX, CXXABI: libstdc++) "
        "than the one that was loaded.",
        (
            "For GLIBCXX and CXXABI: a newer libstdc++ in the environment (`conda install -c "
            "conda-forge libstdcxx-ng`), or the newer one of the two put first (LD_LIBRARY_PATH).",
            "For GLIBC: a container or a machine with a newer system, or a package built for an "
            "older one.",
        ),
        (
            Wording(
                r"\bversion .(?:GLIBC(?:XX)?|CXXABI)_[\d.]+. not found \(required by",
                "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found "
                "(required by /env/lib/python3.11/site-packages/vllm/_C.so)",
                "glibc's loader",
                unless=r"flash_attn",
            ),
            Wording(
                r"\bversion .GLIBC_[\d.]+. not found \(required by",
                "ImportError: /lib64/libc.so.6: version `GLIBC_2.32' not found (required by "
                "/env/lib/python3.11/site-packages/flash_attn_2_cuda.so)",
                "glibc's loader",
            ),
        ),
        instead_of=("flash_attn_abi_mismatch",),
    ),
    Kind(
        "illegal_instruction",
        "A program uses instructions that this processor does not have.",
        ("Install builds for this processor, or use another machine.",),
        (
            Wording(
                r"^Illegal instruction\b",
                "Illegal instruction (core dumped)",
                "the kernel's SIGILL",
                confidence=0.85,
            ),
        ),
    ),
    Kind(
        "python_too_old",
        "The program or a package needs a newer Python than the one that runs it.",
        (
            "Use a newer Python (types joined by a bar need 3.10, tomllib 3.11), or an older "
            "version of the package whose file the last frame names.",
        ),
        (
            Wording(
                r"\bunsupported operand type\(s\) for \|: '(?:type|_\w*GenericAlias|NoneType"
                r"|ABCMeta|EnumMeta)' and '(?:type|NoneType|_\w*GenericAlias|ABCMeta)'"
                r"|\bTypeError: '(?:type|ABCMeta)' object is not subscriptable"
                r"|\bNo module named '(?:tomllib|zoneinfo|graphlib)'"
                r"|\bcannot import name '\w+' from '(?:typing|enum|datetime|dataclasses|types"
                r"|collections\.abc|functools|contextlib|itertools)' \("
                r"|\brequires a different Python: \d[\w.]* not in '>",
                "TypeError: unsupported operand type(s) for |: 'type' and 'NoneType'",
                "Python: PEP 604, PEP 585; pip",
            ),
        ),
        instead_of=("package_missing", "package_mismatch", "library_versions"),
        confidence=0.88,
    ),
    Kind(
        "torch_turned_off",
        "PyTorch is installed but too old for transformers, which therefore goes without it.",
        ("Upgrade PyTorch to the version that the message names, or use an older transformers.",),
        (
            Wording(
                r"\brequires the PyTorch library but it was not found in your environment",
                "Disabling PyTorch because PyTorch >= 9.1 is required but found 9.0\n"
                "AutoModel requires the PyTorch library but it was not found in your environment.",
                "transformers, utils/import_utils.py",
                after=r"Disabling PyTorch because",
            ),
        ),
        instead_of=("optional_package_missing",),
    ),
    Kind(
        "mkl_version",
        "The environment's MKL is newer than the one that this PyTorch was built with.",
        ("`conda install 'mkl<2024.1'`, or take PyTorch from pip, which brings its own.",),
        (
            Wording(
                r"\bundefined symbol: iJIT_NotifyEvent\b",
                "ImportError: /env/torch/lib/libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent",
                "PyTorch, issue 123097",
            ),
        ),
        instead_of=("torch_abi_mismatch", "cuda_library_shadowed"),
    ),
)
