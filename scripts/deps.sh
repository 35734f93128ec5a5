#!/bin/sh
# deps.sh GROUP... - installs the Debian packages of these groups (scripts/packages.txt) that are missing.
#
# Silent and quick when nothing is missing. Without root it names the packages and the command, and stops.
set -eu
list="$(dirname "$0")/packages.txt"

if ! command -v dpkg-query >/dev/null 2>&1; then
	echo "deps: no Debian here: see scripts/packages.txt for what has to be installed" >&2
	exit 0
fi

missing=
for group in "$@"; do
	for package in $(awk -v group="$group" '$1 == group { print $2 }' "$list"); do
		state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
		[ "$state" = installed ] || missing="$missing $package"
	done
done
[ -n "$missing" ] || exit 0

echo "deps: missing packages:$missing"
command="apt-get install --yes --no-install-recommends$missing"
if [ "$(id -u)" -ne 0 ]; then
	echo "deps: installing them needs root. Run:" >&2
	echo "    sudo apt-get update && sudo $command" >&2
	exit 1
fi

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
	echo "deps: $*"
	"$@" >"$log" 2>&1 </dev/null || {
		status=$?
		cat "$log" >&2
		echo "deps: \"$*\" failed" >&2
		exit "$status"
	}
}
# A failing index of some unrelated source must not stop what the others can deliver.
apt-get update >"$log" 2>&1 </dev/null || { echo "deps: apt-get update failed in part:" >&2; tail -3 "$log" >&2; }
# shellcheck disable=SC2086 # a list of words
run apt-get -o DPkg::Lock::Timeout=120 install --yes --no-install-recommends $missing
