# The front door. Meson and Ninja do the building, in $(BUILD); what is missing on a fresh Debian 12 is installed first.
BUILD ?= build
SEEDS ?= 1000
NIGHTLY_SEEDS ?= 100000
NIGHTLY_NAMED_SEEDS ?= 10000
NIGHTLY_STORE_SEEDS ?= 50000
SHM_CUTS ?= 1000
SOFT_CUTS ?= 200
LATE_RUNS ?= 67
REDIS_KILLS ?= 100
MEMCACHED_KILLS ?= 100
PROXY_SECONDS ?= 600
TRANSFER_KILLS ?= 50
SESSION_REQUESTS ?= 100000
SMR_ROUNDS ?= 3
SMR_FAILOVERS ?= 1000
BUSY_SECONDS ?= 600
BUSY_KILLS ?= 50
BUSY_SERVICES ?=
KV_ROUNDS ?= 7
STORE_FAULTS ?= 100 30 20
STORE_CUTS ?= 100
BROKER_FAULTS ?= 200
BROKER_KILLS ?= 100
BROKER_ROUNDS ?= 3
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard fuzz/fuzz_*.c)))
DEMO_ARGS ?=
RXE_CUTS ?= 200
RXE_ARGS ?=
VERBS_SECONDS ?= 40
FAILOVER_CUTS ?= 11
UBSAN = halt_on_error=1:print_stacktrace=1
SANITIZED_SEEDS ?= 50
SANITIZED = --no-suite tidy --no-suite install --no-suite mutants --no-suite models --no-suite sim
DESTDIR ?=
# After a benchmark, whatever came of it: its page.
DRAW = ; status=$$?; python3 scripts/bench_page.py $(1) $(BUILD)/bench-$(1).json $(2) --out $(BUILD)/bench-$(1).html; exit $$status
NINJA = ninja -C $(1) --quiet >&2

.DEFAULT_GOAL = all
.PHONY: all tests program demo demo-kv demo-smr demo-broker demo-transfer check check-all check-rxe check-network stress bench bench-smr bench-smr-long bench-transfer bench-broker busy sim nightly fuzz spin tidy format check-kafka asan tsan install clean deps help

all: $(BUILD)/build.ninja ## Builds build/holdfast, the library and the simulator
	@$(call NINJA,$(BUILD)) product

tests: $(BUILD)/build.ninja ## Builds these and every test
	@scripts/deps.sh test
	@for name in cmocka librdmacm; do grep -q "\"name\": \"$$name\"" $(BUILD)/meson-info/intro-dependencies.json || \
		{ meson setup --reconfigure $(BUILD) >/dev/null; break; }; done
	@$(call NINJA,$(BUILD))

program: $(BUILD)/build.ninja
	@$(call NINJA,$(BUILD)) holdfast

demo: program ## Moves files over two rails that are cut meanwhile (DEMO_ARGS="--quick --input PATH")
	@$(BUILD)/holdfast demo $(DEMO_ARGS)

demo-kv: all ## Two clients count at a store while a rail is cut and a member is killed and restarted; no count is lost
	@python3 scripts/demo_kv.py $(BUILD)/holdfast

demo-broker: all ## kcat writes to three brokers, the leader is killed, and all records are read back
	@python3 scripts/demo_broker.py $(BUILD)/holdfast

demo-transfer: program ## Copies a directory; both rails are cut, tcp takes over, the rails return (DEMO_ARGS="--quick")
	@$(BUILD)/holdfast demo transfer $(DEMO_ARGS)

demo-smr: all ## Counts at a replicated Redis while its leaders are killed (DEMO_ARGS="--memcached memcached")
	@if scripts/deps.sh redis memcached; then $(BUILD)/holdfast smr demo $(DEMO_ARGS); \
		else echo "demo-smr: skipped: the packages of groups redis and memcached (scripts/packages.txt) cannot be had here"; fi

check: tests ## Style, unit, conformance, end to end; windows of the simulator's seeds and of mutants: ten minutes on two cores
	@python3 scripts/check.py $(BUILD)

check-all: tests ## Every test: the same with 1,000 seeds of each scenario, all mutants, models, kills and cuts: some three hours
	@python3 scripts/check.py $(BUILD) --all

check-rxe: tests ## The verbs device over soft-RoCE, in a guest with a kernel of its own (RXE_CUTS=200)
	@if scripts/deps.sh rxe; then python3 scripts/check_rxe.py $(BUILD) --cuts $(RXE_CUTS) $(RXE_ARGS); \
		else echo "check-rxe: skipped: the packages of group rxe (scripts/packages.txt) cannot be had here"; fi

check-network: tests ## The soft NIC of this machine against soft-RoCE in a guest, over a network that cuts and loses
	@if scripts/deps.sh rxe; then python3 tests/interop/network.py $(BUILD); \
		else echo "check-network: skipped: the packages of group rxe (scripts/packages.txt) cannot be had here"; fi

check-kafka: tests ## Unmodified Kafka clients, which it fetches, against our broker: kcat, Python's, Java's
	@scripts/deps.sh kafka || echo "check-kafka: without Java: the packages of group kafka cannot be had here"
	@python3 scripts/check_kafka.py $(BUILD)

stress: tests ## Real processes: 1,000 cuts over shm, 200 over soft, 200 killed leaders of a Redis, 20 minutes of proxies, 400 killed members of stores, 200 cuts of theirs, clients, rails and leaders of brokers
	@$(BUILD)/tests/stress/stress shm $(SHM_CUTS) 2>$(BUILD)/stress-shm.log
	@$(BUILD)/tests/stress/stress soft $(SOFT_CUTS) 2>$(BUILD)/stress-soft.log
	@$(BUILD)/tests/stress/stress soft 20 --policy resend 2>$(BUILD)/stress-resend.log
	@$(BUILD)/tests/stress/reconnect kill shm 50 2>$(BUILD)/reconnect-shm.log
	@$(BUILD)/tests/stress/reconnect kill soft 20 2>$(BUILD)/reconnect-soft.log
	@for kind in soft shm tcp; do $(BUILD)/tests/stress/late $$kind $(LATE_RUNS) 2>$(BUILD)/late-$$kind.log || exit 1; done
	@python3 tests/e2e/smr_proxy_kills.py $(BUILD)/holdfast $(REDIS_KILLS)
	@python3 tests/e2e/smr_proxy_durable.py $(BUILD)/holdfast $(REDIS_KILLS)
	@python3 tests/e2e/smr_memcached_kills.py $(BUILD)/holdfast $(MEMCACHED_KILLS)
	@python3 tests/e2e/smr_proxy_steady.py $(BUILD)/holdfast $(PROXY_SECONDS)
	@$(BUILD)/tests/stress/sessions $(SESSION_REQUESTS) 50 2>$(BUILD)/sessions.log
	@python3 tests/e2e/transfer_killed.py $(BUILD)/holdfast $(TRANSFER_KILLS)
	@for run in "shm 3 file" "soft 3 memory" "shm 5 none" "soft 5 file"; do python3 tests/e2e/kv_kills.py \
		$(BUILD)/holdfast $(BUILD)/tests/e2e/judge $$run $(STORE_FAULTS) || exit 1; done
	@for kind in shm soft; do python3 tests/e2e/kv_cuts.py \
		$(BUILD)/holdfast $(BUILD)/tests/e2e/judge $$kind $(STORE_CUTS) || exit 1; done
	@for kind in shm soft; do python3 tests/e2e/broker_faults.py \
		$(BUILD)/holdfast $(BROKER_FAULTS) $(BROKER_FAULTS) $$kind || exit 1; done
	@python3 tests/e2e/broker_kills.py $(BUILD)/holdfast $(BROKER_KILLS)
	@scripts/deps.sh kafka && python3 scripts/kafka_beside.py $(BUILD) 4.1.1 || echo "stress: without VerifiableProducer: Java, Maven or Kafka's jars cannot be had here"
	@python3 tests/e2e/broker_verifiable.py $(BUILD)/holdfast $(BROKER_KILLS)

bench: ## Measures beside UCX, vqps, failovers: 15 min (VERBS_SECONDS=40 FAILOVER_CUTS=11); build/bench*.json, .html
	@scripts/deps.sh build bench
	@$(MAKE) --no-print-directory all
	@$(BUILD)/holdfast bench --out $(BUILD)/bench.json $(BENCH_ARGS)
	@$(BUILD)/holdfast bench verbs --seconds $(VERBS_SECONDS) --out $(BUILD)/bench-verbs.json $(call DRAW,verbs)
	@$(BUILD)/holdfast bench failover --cuts $(FAILOVER_CUTS) --out $(BUILD)/bench-failover.json $(call DRAW,failover)
	@$(MAKE) --no-print-directory bench-transfer
	@$(MAKE) --no-print-directory tests
	@python3 scripts/check.py $(BUILD) --suite bench

bench-smr: all ## A replicated log beside etcd, ZooKeeper, Redis, Sentinel; 10 min (SMR_ROUNDS=3); build/bench-smr*.json, .html
	@scripts/deps.sh beside || echo "bench-smr: without what is missing: the packages of group beside cannot be had here"
	@python3 scripts/bench_smr.py $(BUILD) --rounds $(SMR_ROUNDS) --out $(BUILD)/bench-smr-beside.json
	@$(BUILD)/holdfast bench smr --failovers 100 --out $(BUILD)/bench-smr.json $(BENCH_ARGS) \
		$(call DRAW,smr,--with $(BUILD)/bench-smr-beside.json)

bench-smr-long: all ## The replicated log at full length: failovers (SMR_FAILOVERS=1000), cuts, lost followers, changes of members: 30 min
	@$(BUILD)/holdfast bench smr --failovers $(SMR_FAILOVERS) --cuts 200 --seconds 60 --entries 10000000 \
		--out $(BUILD)/bench-smr-long.json $(BENCH_ARGS)
	@$(BUILD)/holdfast bench smr members

bench-transfer: all ## What transfers carry, beside UCX and Mooncake, and while all rails are cut 20 times: 5 min
	@$(BUILD)/holdfast bench transfer --out $(BUILD)/bench-transfer.json $$(scripts/mooncake.sh $(BUILD)) $(BENCH_ARGS) \
		$(call DRAW,transfer)

bench-kv: all ## The store beside Redis, ZooKeeper, etcd; kills, recoveries: 40 min (KV_ROUNDS=7); build/bench-kv*.json, .html
	@scripts/deps.sh beside || echo "bench-kv: without what is missing: the packages of group beside cannot be had here"
	@python3 scripts/bench_kv.py $(BUILD) --rounds $(KV_ROUNDS) --out $(BUILD)/bench-kv-beside.json
	@$(BUILD)/holdfast bench kv --rounds $(KV_ROUNDS) --out $(BUILD)/bench-kv.json $(BENCH_ARGS) \
		$(call DRAW,kv,--with $(BUILD)/bench-kv-beside.json)

busy: all ## Services of three members beside four programs that compute, and 50 kills of each (BUSY_SECONDS=600): 3 h; build/busy.json
	@python3 scripts/busy.py $(BUILD) $(BUSY_SERVICES) --seconds $(BUSY_SECONDS) --kills $(BUSY_KILLS) --out $(BUILD)/busy.json

bench-broker: all ## The broker beside Kafka 4.1.1, stock clients at both: at most 8 min (BROKER_ROUNDS=3); build/bench-broker.json, .html
	@scripts/deps.sh kafka || echo "bench-broker: without what is missing: the packages of group kafka cannot be had here"
	@python3 scripts/bench_broker.py $(BUILD) --rounds $(BROKER_ROUNDS) --out $(BUILD)/bench-broker.json $(call DRAW,broker)

sim: all ## Seeded clusters in virtual time (SEEDS=1000), or one again (SEED=n TRACE=1)
	@$(BUILD)/holdfast-sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(if $(TRACE),--trace) $(SIM_ARGS)

nightly: all ## The same with NIGHTLY_SEEDS=100000, stores with 50000, others that run only when named with 10000; up to 16 cores
	@jobs=$$(n=$$(nproc); echo $$((n > 16 ? 16 : n))); nice $(BUILD)/holdfast-sim --seeds $(NIGHTLY_SEEDS) --jobs $$jobs && \
		for scenario in $$($(BUILD)/holdfast-sim --help | sed -n 's/^\* \([a-z-]*\) .*/\1/p'); do \
		case $$scenario in kv|kv-heal|kv-lease) seeds=$(NIGHTLY_STORE_SEEDS);; *) seeds=$(NIGHTLY_NAMED_SEEDS);; esac; \
		nice $(BUILD)/holdfast-sim --scenario $$scenario --seeds $$seeds --jobs $$jobs || exit 1; done

fuzz: ## Every parser of foreign bytes, under ASan and UBSan (FUZZ_SECONDS=60 each)
	@scripts/deps.sh build fuzz
	@[ -f $(BUILD)-fuzz/build.ninja ] || CC=clang meson setup $(BUILD)-fuzz -Dfuzz=true \
		-Db_sanitize=address,undefined -Db_lundef=false >/dev/null
	@ninja -C $(BUILD)-fuzz --quiet $(addprefix fuzz/,$(FUZZ_TARGETS))
	@python3 scripts/fuzz.py $(BUILD)-fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS)

spin: tests ## Searches the models of models/ with spin; each fails when one rule is removed
	@python3 scripts/spin.py $(BUILD)

tidy: all ## The rules of CONTRIBUTING.md that a program can check
	@python3 scripts/tidy.py
	@python3 scripts/cycles.py

format: ## clang-format over all sources
	@scripts/deps.sh format
	@git ls-files '*.[ch]' | xargs clang-format -i

asan: ## The tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/deps.sh build test
	@[ -f $(BUILD)-asan/build.ninja ] || meson setup $(BUILD)-asan -Db_sanitize=address,undefined >/dev/null
	@$(call NINJA,$(BUILD)-asan)
	@UBSAN_OPTIONS=$(UBSAN) $(BUILD)-asan/holdfast-sim --seeds $(SANITIZED_SEEDS)
	@UBSAN_OPTIONS=$(UBSAN) python3 scripts/check.py $(BUILD)-asan $(SANITIZED)

tsan: ## The tests under ThreadSanitizer
	@scripts/deps.sh build test
	@[ -f $(BUILD)-tsan/build.ninja ] || meson setup $(BUILD)-tsan -Db_sanitize=thread >/dev/null
	@$(call NINJA,$(BUILD)-tsan)
	@$(BUILD)-tsan/holdfast-sim --seeds $(SANITIZED_SEEDS)
	@python3 scripts/check.py $(BUILD)-tsan $(SANITIZED)

install: all ## Into DESTDIR, below the prefix given to meson (default /usr/local)
	@meson install -C $(BUILD) --no-rebuild $(if $(DESTDIR),--destdir $(DESTDIR))

deps: ## Only installs the Debian packages that building and testing need
	@scripts/deps.sh build test

clean: ## Removes all build directories
	@rm -rf $(BUILD) $(BUILD)-fuzz $(BUILD)-asan $(BUILD)-tsan

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name what; do \
		printf '  make %-13s %s\n' "$$name" "$$what"; done

$(BUILD)/build.ninja:
	@scripts/deps.sh build
	@meson setup $(BUILD) >/dev/null || { cat $(BUILD)/meson-logs/meson-log.txt; exit 1; }
