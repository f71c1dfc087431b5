"""Missing or incompatible software: extensions, compilers, access to the hub."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.signatures.signature import Head, Strength, signature

_HUB = r"(?:https?://)?(?:[\w-]+\.)*(?:huggingface\.co|hf\.co)\b"
# Messages of huggingface_hub, urllib3 and datasets before a retry.
_RETRIED = (
    r"(?i)thrown while requesting|retrying|retry \d|\bRetry\(total=|will retry|\bretries left"
)

EXTENSIONS = (
    signature(
        "flash_attn_abi_mismatch/symbol",
        "flash+undefined+symbol|flash+glibc+found|flash+cuda+dll|flash+attn+module+cuda"
        "|flash+attn+load+cuda|flash+cxx+found|flash+glibcxx+found|flash+object+shared",
        r"flash_attn\w*[\w./-]*\.so: (?:undefined symbol|cannot open shared object)"
        r"|\(required by [^)]*flash_attn\w*[^)]*\)|while importing flash_attn\w*"
        r"|No module named '(?:flash_attn_(?:2_|3_)?cuda|flash_attn\.flash_attn_interface)'"
        r"|flash_attn[\w./-]*.{0,120}undefined symbol",
        head=Head.WORDS,
    ),
    signature(
        "bitsandbytes_cuda_setup/setup",
        "setup+cuda+failed|setup+cuda+library|setup+cuda+detection|bitsandbytes+compiled+support"
        "|libbitsandbytes|bitsandbytes+library|cuda+binary+configured|cquantize|bitsandbytes+native"
        "|mismatch+version+cuda+bitsandbytes|cget|libcudart+install|bitsandbytes+quantization"
        "|bnb+mismatch+cuda|cadam|nonetype+cget|nonetype+cquantize|nonetype+attribute",
        r"CUDA [Ss]etup failed despite GPU being available"
        r"|CUDA SETUP: (?:Required library version not found|CUDA detection failed|Setup Failed"
        r"|Problem|Something unexpected|ERROR|WARNING! libcuda)"
        r"|bitsandbytes was compiled without GPU support"
        r"|Configured (?:CUDA|ROCm) binary not found at"
        r"|bitsandbytes library load error"
        r"|libbitsandbytes_\w+\.so: (?:undefined symbol|cannot open shared object)"
        r"|'NoneType' object has no attribute '"
        r"(?:cquantize|cget_|cadam|cdequantize|cgemm|cigemm)\w*"
        r"|use bitsandbytes native library functionality but it's not available"
        r"|No libcudart\.so found! Install CUDA or the cudatoolkit package"
        r"|Using `bitsandbytes` .{0,40}quantization requires",
        head=Head.WORDS,
    ),
    signature(
        "triton_missing/missing",
        "triton+installation+working|triton+attribute+module|tritonmissing|module+named+triton|triton+key+import",
        r"Cannot find a working triton installation|TritonMissing\b"
        r"|No module named '?triton(?:\.[\w.]+)?'?\s*$"
        r"|module 'triton' has no attribute '\w+'"
        r"|cannot import name '\w+' from 'triton[\w.]*'",
        head=Head.WORDS,
        unless=r"Error caught was|optimizations will not be enabled|WARNING",
    ),
    signature(
        "compiler_missing/compiler",
        "compiler+find|returned+ninja|returned+which|command+failed+exit|file+fatal+directory|gcc+found|nvcc+found|ninja+found|cc+found|compiler+working+found|invalidcxxcompiler|gcc+returned+zero|cc+returned+zero"
        "|clang+returned+zero|file+fatal+python|lcuda+find|libcuda+found|gcc+found+command|nvcc+file"
        "|gcc+file+directory|ninja+file+directory|ninja+required|extension+building+error|cpp+error"
        "|cuda+home+environment|missingcudaexception|mismatches+detected+cuda|ninja+stopped"
        "|cudamismatchexception|ptxas+find|cppcompileerror|collect+ld|nvcc+found+command"
        "|compile+cuda+unable|nvcc+returned+zero|libcuda+cannot|subcommand+ninja+failed|python+gcc",
        r"Failed to find C compiler|No working C\+\+ compiler found|InvalidCxxCompiler"
        r"|Command '?\[?'?(?:[\w./-]*/)?(?:\w+-)*(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|nvcc|ninja)"
        r"(?:-\d+)?'[^\n]{0,4000}returned non-zero exit status"
        r"|Command '\['which', '(?:c\+\+|g\+\+|gcc|nvcc)'\]' returned non-zero"
        r"|command '(?:[\w./-]*/)?[\w-]*(?:gcc|g\+\+|cc|c\+\+|nvcc)(?:-\d+)?' failed with exit"
        r"|fatal error: (?:Python|cuda\w*|cublas\w*|crypt|stdio|pybind11/\w+)\.h: No such file"
        r"|cannot find -lcuda(?:rt)?\b|libcuda\.so cannot found|libcuda\.so cannot be found"
        r"|(?:gcc|g\+\+|cc|nvcc|ninja|c\+\+)(?:-\d+)?: (?:command )?not found"
        r"|No such file or directory: '(?:[\w./-]*/)?(?:gcc|g\+\+|cc|c\+\+|nvcc|ninja|clang)'"
        r"|Ninja is required to load C\+\+ extensions|Error building extension '\w+'"
        r"|CUDA_HOME environment variable is not set|MissingCUDAException"
        r"|detected CUDA version \([\d.]+\) mismatches the version that was used to compile"
        r"|CUDAMismatchException|[Cc]annot find ptxas|CppCompileError"
        r"|collect2: error: ld returned|ninja: build stopped: subcommand failed",
        head=Head.WORDS,
        unless=r"\[WARNING\]|UserWarning|^\s*warnings?\b|warning:",
        confidence=0.9,
    ),
    signature(
        "nondeterministic_operation/refused",
        "deterministic+implementation+set|deterministic+behavior+enabled",
        r"does not have a deterministic implementation, but you set"
        r"|Deterministic behavior was enabled with either `torch\.use_deterministic_algorithms",
        head=Head.WORDS,
        unless=r"UserWarning|True, warn_only=True",
    ),
)

HUB = (
    signature(
        "hf_gated_repo/denied",
        "gated+repo|gatedrepoerror|restricted+access+authenticated|restricted+access+model"
        "|unauthorized+url+client|forbidden+url+client|private+repository+token|gated+dataset"
        "|repository+found+url|gated+forbidden|datasetnotfounderror|repositorynotfounderror|restricted+access|valid+model+identifier"
        "|credentials+invalid+authorization|private+gated|access+make+sure",
        r"Cannot access gated repo|GatedRepoError"
        r"|trying to access a (?:private or )?gated (?:repo|dataset)"
        rf"|(?:401|403) Client Error[.:][^\n]{{0,200}}{_HUB}"
        r"|[Aa]ccess to (?:model|dataset) [\w./-]+ is restricted"
        r"|is a gated dataset on the Hub|doesn't exist on the Hub or cannot be accessed"
        r"|403 Forbidden: Please enable access to public gated repositories"
        r"|If this is a private repository, make sure to pass a token"
        r"|is not a local folder and is not a valid model identifier listed on"
        rf"|Repository Not Found for url: {_HUB}|RepositoryNotFoundError: 40[134]"
        r"|Invalid credentials in Authorization header|Invalid user token"
        r"|Make sure to have access to it at https://huggingface\.co",
        head=Head.WORDS,
        unless=_RETRIED + r"|safetensors_conversion|auto_conversion",
        confidence=0.9,
    ),
    signature(
        "hf_network/unreachable",
        "connect+couldn+huggingface|retries+max+huggingface|huggingface+resolve+failed"
        "|localentrynotfounderror|offlinemodeisenabled|cache+disk+requested|reach+couldn+hub"
        "|huggingface+server+error|huggingface+timed+read|huggingface+timeout|huggingface+client+too"
        "|reach+cannot+huggingface|cache+local+requested|hub+reach+couldn|huggingface+ssl"
        "|huggingface+proxyerror|reach+couldn+huggingface|huggingface+refused+connection"
        "|cache+files+requested|cached+files+requested|hf+co+server|hf+co+timed|hf+co+retries|reach+couldn+raw|hub+connect"
        "|server+disconnected+connectionerror",
        rf"(?:We )?[Cc]ouldn't connect to '?{_HUB}"
        rf"|HTTPSConnectionPool\(host='{_HUB}'[^\n]{{0,80}}(?:Max retries exceeded|Read timed out)"
        rf"|[Ff]ailed to resolve '{_HUB}|Failed to establish a new connection[^\n]{{0,60}}{_HUB}"
        r"|LocalEntryNotFoundError|OfflineModeIsEnabled"
        r"|(?:Connection error, and we )?cannot find the requested files in the "
        r"(?:(?:disk|local) cache|cached path)"
        rf"|(?:429|5\d\d) (?:Client|Server) Error: [^\n]{{0,60}} for url: {_HUB}"
        rf"|[Cc]ouldn't reach (?:'[\w./-]+' on the Hub|{_HUB}|https://raw\.githubusercontent)"
        rf"|[Cc]annot reach {_HUB}|\bConnectionError: Server Disconnected\b"
        rf"|(?:ReadTimeout|ConnectTimeout|SSLError|ProxyError|ConnectionError)\b[^\n]{{0,160}}{_HUB}",
        head=Head.WORDS,
        unless=_RETRIED + r"|HEAD https|Error during conversion|Ignored error",
        retryable=True,
        confidence=0.9,
        strength=Strength.STATED,
    ),
)

SIGNATURES = (*EXTENSIONS, *HUB)
