#!/usr/bin/env bash
# Makes .venv with Trainmaster, PyTorch and the tools. Says what it installs before it does: packages
# of Python into .venv alone, and system packages that are missing, for root, or by sudo where a person
# agrees at the terminal or SUDO=yes says so. Quick where nothing is to be done.
#
#   scripts/setup.sh EXTRAS [COMMAND=PACKAGE...]
#
# EXTRAS are those of pyproject.toml (train,dev); each COMMAND must be found, or PACKAGE is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

extras=$1
shift

say() { printf '%s\n' "$*" >&2; }

python_ok() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for name in "${PYTHON:-}" python3.13 python3.12 python3.11 python3; do
        if [ -n "$name" ] && command -v "$name" >/dev/null && python_ok "$name"; then
            command -v "$name"
            return
        fi
    done
    say 'Python 3.11 or newer is needed. On Debian or Ubuntu: apt-get install python3 python3-venv'
    exit 1
}

install_packages() {
    local sudo=
    if ! command -v apt-get >/dev/null; then
        say "These programs are missing: $*. Install them, then run this again."
        exit 1
    fi
    if [ "$(id -u)" != 0 ]; then
        say "These system packages are missing: $*"
        if ! sudo_agreed; then
            say "Install them, then run this again:  sudo apt-get install $*"
            say "Or let this do it:  SUDO=yes make ..."
            exit 1
        fi
        sudo=sudo
    fi
    say "Installing system packages: $*"
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
    without_services "$sudo" \
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >&2
}

# By the variable, or by a person's answer.
sudo_agreed() {
    local answer=${SUDO:-}
    if [ -z "$answer" ] && [ -t 0 ] && command -v sudo >/dev/null; then
        read -r -p 'Install them by sudo apt-get? [y/N] ' answer
    fi
    [[ "${answer,,}" == y* ]] && command -v sudo >/dev/null
}

# Runs a command that installs packages; none of their services is started, now or at the next boot:
# tests start their own, and nobody asked for an SSH server or Docker's daemon by `make setup`.
without_services() {
    local sudo=$1 policy=/usr/sbin/policy-rc.d enabled new status=0
    shift
    enabled=$(enabled_units)
    if [ ! -e "$policy" ]; then
        # shellcheck disable=SC2064 # which file is known now
        trap "$sudo rm -f $policy" EXIT
        printf '#!/bin/sh\nexit 101\n' | $sudo install -m 755 /dev/stdin "$policy"
    fi
    "$@" || status=$?
    if [ -n "$(trap -p EXIT)" ]; then
        $sudo rm -f "$policy"
        trap - EXIT
    fi
    new=$(comm -13 <(printf '%s\n' "$enabled") <(enabled_units))
    if [ -n "$new" ]; then
        say "Not started, and not at boot either (systemctl enable --now NAME does both):" $new
        $sudo systemctl --quiet disable $new >&2
    fi
    return "$status"
}

enabled_units() {
    [ ! -d /run/systemd/system ] ||
        systemctl list-unit-files --no-legend --state=enabled | awk '{ print $1 }' | LC_ALL=C sort
}

missing=()
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || [ -x "/usr/sbin/${pair%%=*}" ] || missing+=("${pair#*=}")
done
if [ "${#missing[@]}" -gt 0 ]; then
    install_packages "${missing[@]}"
fi

# An environment that is incomplete, or whose interpreter was removed, is made again.
stamp=.venv/.installed
wanted=$(printf '%s\n' "$extras" | cat - pyproject.toml constraints.txt requirements-dev.lock | cksum)
if [ -x .venv/bin/python ] && python_ok .venv/bin/python && [ -f "$stamp" ] &&
    grep -qxF "$wanted" "$stamp"; then
    exit 0
fi
python=$(find_python)
if [ ! -x .venv/bin/pip ] || ! python_ok .venv/bin/python; then
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        install_packages "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    fi
    say 'Making .venv ...'
    "$python" -m venv --clear .venv
fi
say "Installing Trainmaster with [$extras], PyTorch included, and what they need into $PWD/.venv:" \
    'packages of Python from your package index. Nothing outside of it is changed. Minutes ...'
pip() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"
}
# PyTorch first: which build suits this machine, its package indexes know.
pip --constraint constraints.txt torch
if [[ ",$extras," == *,frameworks,* ]]; then
    # By digest, and nothing but what the lock names (scripts/make_locks.py).
    pip --no-deps --require-hashes --requirement requirements-dev.lock
    # DeepSpeed's setup asks the PyTorch that is installed; without its compiled operators.
    PYTHONPATH=. .venv/bin/python scripts/locked.py deepspeed setuptools wheel > .venv/locked.txt
    PYTHONPATH=. .venv/bin/python scripts/locked.py --only deepspeed > .venv/deepspeed.txt
    pip --no-deps --require-hashes --requirement .venv/locked.txt
    DS_BUILD_OPS=0 pip --no-deps --require-hashes --no-build-isolation \
        --requirement .venv/deepspeed.txt
    pip --no-deps --no-build-isolation --editable .
else
    pip --constraint constraints.txt --editable ".[$extras]"
fi
# A call that asks for fewer extras keeps what is installed.
printf '%s\n' "$wanted" >> "$stamp"
