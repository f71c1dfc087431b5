#!/bin/sh
# Runs a command with a folder, which holds its TMPDIR too, in memory. Both are gone when it ends.
#
#   scripts/in_memory.sh FOLDER COMMAND...
#
# For tests: they write thousands of homes durably, for which a disk takes a tenth of their time.
# The folder is on disk, and stays, where memory is short, where none may be mounted (that takes
# root), and where ON_DISK is set.
set -eu
folder=$1
shift
mkdir -p "$folder"

enough_kib=$((8 * 1024 * 1024))
mounted='mount -t tmpfs -o mode=0755,size=75% tests "$0" && mkdir -m 1777 "$0/tmp" &&
    export TMPDIR="$0/tmp" && exec "$@"'

free_kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null) || free_kib=0
if [ -z "${ON_DISK:-}" ] && [ "${free_kib:-0}" -ge "$enough_kib" ] &&
    unshare --mount sh -c "$mounted" "$folder" true 2>/dev/null; then
    exec unshare --mount sh -c "$mounted" "$folder" "$@"
fi
exec "$@"
