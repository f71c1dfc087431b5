# Checks a machine that has no Python interpreter: `sh -s ROOT CACHE`, with this as its input.
#
# Prints rows `row NAME STATE FOUND REMEDY` with tabs between, and last `time UNIX_SECONDS`.

set -u
row() { printf 'row\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4:-}"; }

if command -v tmux >/dev/null 2>&1; then
    row 'tmux or screen' ok tmux
elif command -v screen >/dev/null 2>&1; then
    row 'tmux or screen' ok screen
else
    row 'tmux or screen' warn neither \
        "Install tmux to attach to a training's log; nothing needs it."
fi

folder() {
    existing=$2
    while [ ! -e "$existing" ]; do
        existing=$(dirname -- "$existing")
    done
    if [ ! -d "$existing" ] || [ ! -w "$existing" ]; then
        row "$1" fail "$existing can't be written" \
            "Make it writable, or choose another: \`trainmaster hosts add … --$1 DIR\`."
        return
    fi
    free_kib=$(df -Pk -- "$existing" 2>/dev/null | awk 'NR == 2 {print $4}')
    row "$1" ok "$2, $(( ${free_kib:-0} / 1048576 )) GiB free"
}
folder root "$1"
folder cache "$2"

if command -v nvidia-smi >/dev/null 2>&1; then
    nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader 2>/dev/null |
        while IFS=, read -r index name driver; do
            row "gpu $index" ok "${name# }, driver${driver}"
        done
else
    row gpu warn none 'Small models train on the processor; others need a GPU.'
fi
printf 'time\t%s\n' "$(date +%s)"
