#!/bin/bash
# rxe-check.sh BUILD CUTS [PIECE]... - what `make check-rxe` runs in the guest of rxe_vm.py, piece by piece.
#
# Each piece prints its log, and then "@@ NAME ok|FAILED SECONDS WORDS" with a line of its own. The exit status is how
# many failed.
set -o pipefail
build=$1 cuts=$2
shift 2
here=$(dirname "$0")
export TMPDIR=/run
mkdir -p /run/check
failed=0

# Of each piece: how it is run, and what is said of its log.
conformance() { "$build"/tests/conformance/conformance rxe 2>&1; }
say_conformance() { grep -oE "^\[  (PASSED|FAILED|SKIPPED) +\] [0-9]+ test" "$1" | tr -d '[]' | tr -s ' \n' ' '; }

# The soft NIC against the kernel's: as requester, then as responder, and back.
interop() {
	local status=0
	"$build"/tests/conformance/conformance rxe-soft 2>&1 || status=1
	ip netns exec soft "$build"/tests/conformance/conformance soft-rxe 2>&1 || status=1
	return $status
}
say_interop() { say_conformance "$1"; }

demo() { "$build"/holdfast demo --quick --device verbs --base 10.10.0.1 --input "$here/../src" \
	--config "$here"/rxe-demo.json --output /run/check 2>&1; }
say_demo() { grep -E "^  (cuts|failover|verdict)" "$1" | tr -s ' \n' ' '; }

# Exactly once with atomics by UID; then what is told of native ones whose answer is lost.
stress() {
	"$build"/tests/stress/stress verbs "$cuts" 2> >(tee /run/check/stress.log | grep --line-buffered "^cut") ||
		{ tail -40 /run/check/stress.log; return 1; }
	"$build"/tests/stress/reconnect cut verbs $((1 + cuts / 10)) 2>/run/check/reconnect.log ||
		{ tail -40 /run/check/reconnect.log; return 1; }
}
say_stress() { grep -E "^(stress|reconnect|ok|FAILED)" "$1" | tr -s '\n' ' '; }

# A program that was written for libibverbs, on two rails of rxe: its bond is holdfast0.
configure() { # NODE RAIL0 RAIL1 MANAGEMENT
	cat >/run/check/"$1".json <<-JSON
		{ "name": "$1", "management": ["$4:18515"], "heartbeat_ms": 500, "timeout": 14, "retry_cnt": 4, "rails": [
		{ "name": "r0", "kind": "verbs", "address": "$2", "control": "$2:18515" },
		{ "name": "r1", "kind": "verbs", "address": "$3", "control": "$3:18515" }] }
	JSON
}
perftest() {
	local program status=0
	configure a 10.10.0.1 10.10.0.2 127.201.0.1
	configure b 10.10.0.3 10.10.0.4 127.201.0.2
	for program in "ib_write_bw -s 65536 -n 200" "ib_read_bw -s 65536 -n 200" "ib_send_bw -s 4096 -n 200" "ib_write_lat -n 200"; do
		program="$program -F -d holdfast0 -p 18600" # that of the rails is perftest's own
		# shellcheck disable=SC2086 # a list of words
		timeout 60 "$build"/holdfast run --config /run/check/b.json -- $program \
			>/run/check/server.log 2>&1 &
		sleep 2
		# shellcheck disable=SC2086
		timeout 60 "$build"/holdfast run --config /run/check/a.json -- $program 127.0.0.1 2>&1 ||
			{ status=1 && cat /run/check/server.log; }
		wait $! || status=1
	done
	return $status
}
say_perftest() { grep -cE "^ +[0-9]+ +[0-9]+ +[0-9.]+" "$1" | sed 's/$/ programs gave figures/'; }

# The four services, each on three nodes or two.
services() { python3 "$here"/../tests/rxe/services.py "$build"/holdfast 2>&1; }
say_services() { grep -cE "^ok" "$1" | sed 's/$/ tests passed/'; }

[ $# -gt 0 ] || set -- conformance demo perftest services stress
for piece in "$@"; do
	began=$SECONDS
	if $piece | tee /run/check/"$piece".out; then word=ok; else word=FAILED failed=$((failed + 1)); fi
	echo "@@ $piece $word $((SECONDS - began)) $(say_"$piece" /run/check/"$piece".out)"
done
exit $failed
