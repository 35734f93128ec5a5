"""The four services on verbs devices, in the guest of scripts/rxe_vm.py: services.py HOLDFAST.

Of three members the first has the devices of host a, the other two share those of host b (scripts/rxe-guest.sh). The guest
may be emulated, so timers are long.
"""
import json
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "e2e")]
import broker_cluster
import kv_cluster
import program
import smr_proxy

A, B = ["10.10.0.1", "10.10.0.2"], ["10.10.0.3", "10.10.0.4"]
DEVICES = [A, B, B]
NODE = {"heartbeat_ms": 500, "timeout": 14, "retry_cnt": 4}
LIMIT_S = 120
COUNTS, KILLS, KEYS, RECORDS = 100, 2, 200, 2000


def a_transfer_arrives_over_two_rails(directory):
    directory = pathlib.Path(directory)
    control = [f"127.0.3.{i}:18515" for i in range(2)]
    for name, addresses, third in (("a", A, 2), ("b", B, 3)):
        rails = [{"name": f"r{i}", "kind": "verbs", "address": address, "control": f"127.0.{third}.{i}:18515"}
                 for i, address in enumerate(addresses)]
        (directory / f"{name}.json").write_text(json.dumps(NODE | {"name": name, "rails": rails}))
    (directory / "into").mkdir()
    data = bytes(range(251)) * 64_000
    (directory / "file").write_bytes(data)
    receiver = program.start(directory, "transfer", "receive", "into", "--config", "b.json")
    try:
        program.read_until(receiver, ["ready to receive"])
        done = json.loads(program.run(directory, "transfer", "send", "file", ",".join(control), "--config", "a.json", "--json",
                                      check=0).stdout)
    finally:
        receiver.send_signal(signal.SIGINT)
        receiver.communicate(timeout=LIMIT_S)
    assert (directory / "into" / "file").read_bytes() == data
    assert all(rail["bytes"] > done["tcp_bytes"] for rail in done["rails"]), done


class _Proxies(smr_proxy._Cluster):
    def rail(self, i):
        return {"kind": "verbs", "address": DEVICES[i][0]}


def a_replicated_redis_counts_on_when_its_leader_is_killed(directory):
    cluster = _Proxies(directory)
    try:
        for kill in range(KILLS):
            leader = cluster.leader()
            answers = cluster.cli((leader + 1) % 3, text="INCR counter\n" * COUNTS).split()
            assert answers == [str(kill * COUNTS + i + 1) for i in range(COUNTS)], answers
            cluster.kill(leader)
            assert cluster.leader() != leader
            cluster.start(leader)
            cluster.wait_back(leader)
        cluster.wait_alike()
    finally:
        cluster.close()


def a_killed_member_of_the_store_returns(directory):
    with kv_cluster.Cluster(directory, "verbs", node=NODE, devices=DEVICES, lease_ms=5000, log="LOG") as cluster:
        clients = [cluster.client(i) for i in range(3)]
        for i in range(KEYS):
            assert clients[i % 3].ask("SET", f"key{i}", i) == "+OK"
        cluster.kill(2)
        for i in range(KEYS, 2 * KEYS):
            assert clients[i % 2].ask("SET", f"key{i}", i) == "+OK"
        cluster.start(2)
        cluster.wait_serving(2)
        assert cluster.status(2)["recoveries"][0]["healed"]
        for i in range(2 * KEYS):
            assert cluster.client(2).ask("GET", f"key{i}") == str(i).encode()
        cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)


def records_outlive_the_broker_that_leads(directory):
    with broker_cluster.Cluster(program.HOLDFAST, directory, kind="verbs", node=NODE, devices=DEVICES) as cluster:
        cluster.start_all()
        path = pathlib.Path(directory) / "client.json"
        path.write_text(json.dumps(cluster.client("client", 1, devices=A)))
        lines = [f"{i}\n" for i in range(RECORDS)]
        _produce(cluster, path, lines[:RECORDS // 2])
        cluster.stop(0, signal.SIGKILL)
        _produce(cluster, path, lines[RECORDS // 2:])
        counts = [json.loads(program.run(directory, "broker", "status", f"{cluster.hosts[i][0]}:8080", "--json", check=0).stdout)
                  ["counts"] for i in (1, 2)]
        for name in ("grants_total", "replicated_bytes_total"):  # nothing went over TCP for want of a rail
            assert any(count[name] for count in counts), counts
        for config in ([], ["--config", str(path)]):
            done = program.run(directory, "consume", "--brokers", cluster.address, "--topic", "numbers", "--exit", *config, check=0)
            assert done.stdout == "".join(lines), done.stdout[-200:]


def _produce(cluster, path, lines):
    done = subprocess.run([program.HOLDFAST, "produce", "--brokers", cluster.address, "--topic", "numbers", "--partition", "0",
                           "--config", str(path)], input="".join(lines), text=True, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
