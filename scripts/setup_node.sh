#!/usr/bin/env bash
# Installs what tests/support/mcp/node names into .venv/node: the protocol's own tools for trying MCP
# servers, and Node.js 22 for them. By digest, and no package runs a script. Quick where nothing is
# to be done.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=$(cat tests/support/mcp/node/package.json tests/support/mcp/node/package-lock.json | cksum)
folder=.venv/node
stamp=$folder/node_modules/.installed
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi
say() { printf '%s\n' "$*" >&2; }
if ! command -v npm >/dev/null; then
    say 'npm is needed for the tests of the MCP server. On Debian or Ubuntu: apt-get install npm'
    exit 1
fi
say 'Installing the MCP test tools into .venv/node ...'
mkdir -p "$folder"
cp tests/support/mcp/node/package.json tests/support/mcp/node/package-lock.json "$folder"
# The npm that is here may want another Node.js than its packages do; they get their own.
npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
if ! compgen -G "$folder/node_modules/node-linux-*/bin/node" >/dev/null; then
    say 'The packages hold no Node.js 22 for this processor; they do for x64 and arm64.'
    exit 1
fi
printf '%s\n' "$wanted" > "$stamp"
