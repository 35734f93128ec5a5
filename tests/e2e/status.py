"""What a configured node serves over HTTP, as Prometheus, a browser and a health check read it."""
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

import broker
import kv_cluster
import program

LIMIT_S = 60


class _Node:
    """A program on a node with an address for HTTP; it waits for a client that does not come."""

    made = 0

    def __init__(self, directory):
        program.needs_verbs_library()
        if shutil.which("ibv_rc_pingpong") is None:
            raise program.Skip("ibv_rc_pingpong is not installed (scripts/packages.txt names its package)")
        _Node.made += 1  # links that a test took down stay down
        self.fabric = f"test-status-{os.getpid()}-{_Node.made}"
        host = f"{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        rails = [{"name": f"r{i}", "kind": "soft", "address": f"127.{120 + i}.{host}",
                  "control": f"127.{120 + i}.{host}:18700"} for i in range(2)]
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        path = pathlib.Path(directory) / "node.json"
        path.write_text(json.dumps({"name": "n", "fabric": self.fabric, "rails": rails,
                                    "http": f"127.0.0.1:{self.port}"}))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            other = taken.getsockname()[1]
        self.process = subprocess.Popen(
            [program.HOLDFAST, "run", "--config", str(path), "--", "ibv_rc_pingpong", "-g", "0", "-p", str(other)],
            cwd=directory, env=dict(program.environment(directory), HOLDFAST_LOG="info"), text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        program_said = []
        for line in self.process.stderr:
            program_said.append(line)
            if "status at http://" in line:
                self.url = line.split()[-1]
                return
        raise AssertionError("".join(program_said))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stderr.close()

    def client(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)


def _get(client, path, method="GET"):
    client.request(method, path)
    answer = client.getresponse()
    return answer, answer.read().decode()


def one_connection_reads_every_page(directory):
    with _Node(directory) as node:
        assert urllib.parse.urlsplit(node.url).port == node.port, node.url
        client = node.client()
        client.connect()
        first = client.sock
        answer, text = _get(client, "/metrics")
        assert answer.status == 200 and answer.getheader("Content-Type").startswith("text/plain; version=0.0.4")
        for line in ('# TYPE holdfast_rail_up gauge', 'holdfast_rail_up{node="n",rail="r0"} 1',
                     'holdfast_rail_up{node="n",rail="r1"} 1', 'holdfast_control_peers{node="n"} 0',
                     '# TYPE holdfast_vqp_failovers_total counter', 'holdfast_vqp_failovers_total{node="n"} 0',
                     'holdfast_vqp_resent_bytes_total{node="n"} 0', 'holdfast_vqp_unknown_wrs_total{node="n"} 0',
                     'holdfast_vqp_failover_seconds_bucket{node="n",le="+Inf"} 0'):
            assert line in text.splitlines(), f"no {line} in:\n{text}"
        answer, text = _get(client, "/metrics.json")
        metrics = {(m["name"], m["labels"].get("rail")): m for m in json.loads(text)["metrics"]}
        assert metrics["holdfast_rail_up", "r1"]["value"] == 1 and answer.getheader("Content-Type") == "application/json"
        answer, text = _get(client, "/health")
        assert answer.status == 200
        assert json.loads(text) == {"node": "n", "status": "ok", "rails": {"r0": "up", "r1": "up"}, "peers": 0}
        answer, text = _get(client, "/metrics", method="HEAD")
        assert answer.status == 200 and text == "" and int(answer.getheader("Content-Length")) > 0
        answer, text = _get(client, "/")
        assert answer.status == 200 and "/metrics" in text
        answer, text = _get(client, "/nothing")
        assert answer.status == 404 and "nothing at this path" in text
        assert client.sock is first, "the connection was not kept"
        answer, text = _get(client, "/metrics", method="POST")
        assert answer.status == 405 and answer.getheader("Allow") == "GET, HEAD"


def health_follows_the_links(directory):
    with _Node(directory) as node:
        client, end = node.client(), time.monotonic() + LIMIT_S
        for rail in ("r0", "r1"):
            program.run(directory, "link", "down", f"n/{rail}", "--fabric", node.fabric, check=0)
        while True:
            answer, text = _get(client, "/health")
            if answer.status == 503:
                break
            assert time.monotonic() < end, text
        assert json.loads(text)["status"] == "no rail is up"
        assert 'holdfast_rail_up{node="n",rail="r0"} 0' in _get(client, "/metrics")[1]


def curl_reads_the_metrics(directory):
    if shutil.which("curl") is None:
        raise program.Skip("curl is not installed (scripts/packages.txt)")
    with _Node(directory) as node:
        done = subprocess.run(["curl", "--silent", "--show-error", "--fail", "--max-time", str(LIMIT_S),
                               node.url + "metrics", node.url + "health"], text=True, capture_output=True, check=True)
        assert 'holdfast_rail_up{node="n",rail="r0"} 1' in done.stdout and '"status":"ok"' in done.stdout, done.stdout


def an_address_that_is_taken_is_named(directory):
    with _Node(directory) as node:
        config = json.loads((pathlib.Path(directory) / "node.json").read_text())
        config["name"] = "m"
        for rail in config["rails"]:
            rail["address"] = rail["address"].replace("127.12", "127.13")
            rail["control"] = rail["control"].replace("127.12", "127.13")
        path = pathlib.Path(directory) / "other.json"
        path.write_text(json.dumps(config))
        done = program.run(directory, "run", "--config", str(path), "--", "ibv_rc_pingpong", "-g", "0")
        assert done.returncode != 0 and f"127.0.0.1:{node.port} is in use" in done.stderr, done.stderr


def _status(directory, service, address):
    return program.run(directory, *service.split(), "status", address)


def _serve_nothing(stop, listener):
    listener.settimeout(0.1)
    kept = []
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            kept.append(listener.accept())


def a_status_command_says_what_is_at_the_address_instead(directory):
    node = broker._node("broker", 1, 18515)
    host = node["rails"][0]["address"]
    below = pathlib.Path(directory) / "kv"
    below.mkdir()
    with broker._Broker(directory, node=node | {"http": f"{host}:8080"}) as of, kv_cluster.Cluster(below, "shm", 1) as store:
        others = {
            of.address: "serves clients of Kafka",
            "%s:%d" % store.address(0): "serves clients of Redis",
            node["rails"][0]["control"]: "does not speak HTTP",
            "127.0.0.1:1": "cannot be reached: Connection refused",
        }
        for address, words in others.items():
            for service in ("kv", "smr", "broker", "transfer"):
                done = _status(directory, service, address)
                assert done.returncode > 0 and f"{address} {words}" in done.stderr, (service, done.stderr)
                assert "give the address under `http`" in done.stderr, done.stderr
        for service, address, right in (("kv", f"{host}:8080", "broker"), ("smr", f"{host}:8080", "broker"),
                                        ("transfer", store.http(0), "kv"), ("broker", store.http(0), "kv")):
            done = _status(directory, service, address)
            assert f"use `holdfast {right} status {address}`" in done.stderr, (service, done.stderr)
            assert _status(directory, right, address).returncode == 0


def a_command_for_clients_says_what_is_at_the_address_instead(directory):
    broker_wanted, proxy_wanted = "and not of Kafka", "and is no proxy of a Redis; give the address under `listen`"
    with kv_cluster.Cluster(directory, "shm", 1) as store:
        redis, control = "%s:%d" % store.address(0), f"{store.hosts[0][0]}:18700"
        for address, command, words in (
                (redis, "topics --brokers @", f"serves clients of Redis, {broker_wanted}"),
                (store.http(0), "groups --brokers @", f"serves clients of HTTP, {broker_wanted}"),
                (control, "topics --brokers @", "ended the connection: a control port of a node does"),
                (redis, "consume --brokers @ --topic t --timeout 6", f"serves clients of Redis, {broker_wanted}"),
                (redis, "smr members remove @ 1", f"serves clients of Redis, {proxy_wanted}"),
                (store.http(0), "smr members remove @ 1", f"serves clients of HTTP, {proxy_wanted}")):
            done = program.run(directory, *command.replace("@", address).split())
            assert done.returncode > 0 and f"{address} {words}" in done.stderr, (command, done.stderr)


def a_status_command_ends_where_nothing_answers(directory):
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        thread = threading.Thread(target=_serve_nothing, args=[stop, silent])
        thread.start()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = _status(directory, "broker", address)
        stop.set()
        thread.join()
    assert done.returncode > 0 and f"{address} has not answered within 2 s" in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
