#!/bin/sh
# mooncake.sh BUILD - Mooncake's wheel in a virtual environment below BUILD; prints the options by which `holdfast bench
# transfer` finds its benchmark, or nothing where it cannot be had.
set -eu
place="$1/mooncake"
wheel=mooncake-transfer-engine-non-cuda==0.3.13.post1
found() { find "$place" -path '*/site-packages/mooncake/transfer_engine_bench' 2>/dev/null | head -1; }
if [ -z "$(found)" ]; then
	{ python3 -m venv "$place" && "$place/bin/pip" install -q --no-deps "$wheel"; } >"$1/mooncake.log" 2>&1 || true
fi
program=$(found)
[ -z "$program" ] || echo "--mooncake $program"
