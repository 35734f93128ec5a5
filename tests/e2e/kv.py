"""`holdfast kv`: three members as processes, as clients of Redis see them."""
import json
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading

import program
from kv_cluster import LIMIT_S, Closed, Cluster

KIND = sys.argv[2] if len(sys.argv) > 2 else "shm"


def every_member_answers_what_any_of_them_took(directory):
    with Cluster(directory, KIND) as cluster:
        clients = [cluster.client(i) for i in range(3)]
        assert clients[0].ask("SET", "key", "value") == "+OK"
        for client in clients:
            assert client.ask("GET", "key") == b"value"
        assert clients[1].ask("SET", "key", "other", "NX") is None
        assert clients[1].ask("SET", "key", "other", "XX", "GET") == b"value"
        assert clients[2].ask("APPEND", "key", "!") == 6
        assert clients[0].ask("GETDEL", "key") == b"other!"
        assert clients[1].ask("GET", "key") is None
        assert clients[1].ask("DEL", "key", "another") == 0
        assert clients[2].ask("MSET", "a", "1", "b", "2") == "+OK"
        assert clients[0].ask("MGET", "a", "none", "b") == [b"1", None, b"2"]
        assert clients[0].ask("EXISTS", "a", "b", "none") == 2
        large = b"x" * 1_000_000
        assert clients[0].ask("SET", "large", large) == "+OK"
        assert clients[1].ask("GET", "large") == large
        cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)


def a_store_of_one_member_serves(directory):
    with Cluster(directory, KIND, 1) as cluster:  # min_members is 2 by default
        assert cluster.client(0).ask("SET", "key", "value").startswith("-NOREPLICAS ")
        assert cluster.client(0).ask("GET", "key") is None and "min_members" in cluster.log(0)
    with Cluster(directory, KIND, 1, min_members=1) as cluster:
        client = cluster.client(0)
        assert client.ask("SET", "key", "value") == "+OK"
        assert client.ask("GET", "key") == b"value" and client.ask("INCR", "n") == 1 and client.ask("WAIT", 0, 0) == 0


def additions_of_all_members_add_up(directory):
    with Cluster(directory, KIND) as cluster:
        def count(i):
            client = cluster.client(i)
            for _ in range(200):
                answers[i].append(client.ask("INCR", "counter"))

        answers = [[], [], []]
        threads = [threading.Thread(target=count, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(sum(answers, [])) == list(range(1, 601))


def pipelined_requests_are_answered_in_order(directory):
    with Cluster(directory, KIND) as cluster:
        client = cluster.client(0)
        for i in range(300):
            client.send("SET", "key", i)
            client.send("GET", "key")
            client.send("PING", i)
        for i in range(300):
            replies = [client.reply() for _ in range(3)]
            assert replies == ["+OK", b"%d" % i, b"%d" % i], (i, replies)


def wrong_requests_are_refused_in_words(directory):
    with Cluster(directory, KIND) as cluster:
        client = cluster.client(0)
        assert client.ask("SET", "key", "word") == "+OK"
        for words, error in ((("INCR", "key"), "-ERR value is not an integer"),
                             (("EXPIRE", "key", "1"), "-ERR records do not expire here"),
                             (("SET", "key", "v", "EX", "1"), "-ERR records do not expire here"),
                             (("LPUSH", "key", "1"), "-ERR unknown command 'LPUSH'"),
                             (("GET",), "-ERR wrong number of arguments"),
                             (("SET", "k" * 20000, "v"), "-ERR a key has 1 to 16384 bytes"),
                             (("SET", "key", "v" * 2_000_000), "-ERR a value has at most 1048576 bytes"),
                             (("SELECT", "1"), "-ERR DB index")):
            assert client.ask(*words).startswith(error), words
        assert client.ask("GET", "key") == b"word"
        client.stream.sendall(b"*1\r\n$-5\r\n")
        assert client.reply().startswith("-ERR Protocol error")
        try:
            client.reply()
            assert False, "the connection stays open"
        except Closed:
            pass


def member_with_another_list_is_refused(directory):
    with Cluster(directory, KIND) as cluster:
        cluster.kill(2)
        members = [{"name": f"n{i}", "control": [f"{cluster.hosts[i][0]}:18700"]} for i in (0, 2, 1)]
        cluster.write(2, members, {})
        cluster.start(2)
        cluster.wait("a refusal", lambda: any("its `cluster` or its list of members is another" in cluster.log(i)
                                              for i in (0, 1)))


def _change(cluster, i, settings):
    made = json.loads(cluster.path(i).read_text())
    made["kv"] |= settings
    cluster.path(i).write_text(json.dumps(made))


def members_that_promise_other_things_are_refused(directory):
    with Cluster(directory, KIND) as cluster:
        client, right = cluster.client(0), cluster.path(2).read_text()
        assert client.ask("SET", "key", "value") == "+OK"
        for settings, words in (({"lease_ms": 900}, "its lease_ms is another"), ({"cluster": "other"}, "its `cluster`"),
                                ({"log": "LOG"}, "it has a `log` where this one has none")):
            cluster.kill(2)
            _change(cluster, 2, settings)
            cluster.start(2)
            cluster.wait("a refusal", lambda said=words: any(f"n2 is refused: {said}" in cluster.log(i) for i in (0, 1)))
            assert client.ask("GET", "key") == b"value" and not cluster.serves(2)
            if "lease_ms" in settings:  # the reason, and no line for each attempt to connect
                cluster.wait("a reason", lambda: "n2 serves nothing: it waits for a majority" in cluster.log(2))
                said = cluster.log(2)
                assert said.count("returned no vqp") <= 2 and said.count("is lost") <= 2, said
            cluster.path(2).write_text(right)
        cluster.kill(2)
        cluster.start(2)
        cluster.wait_serving(2)


def second_process_of_a_name_is_refused(directory):
    with Cluster(directory, KIND) as cluster:
        client = cluster.client(2)
        assert client.ask("SET", "key", "value") == "+OK"
        twin = cluster.path(2).read_text()
        for rail, host in enumerate(cluster.hosts[2]):
            twin = twin.replace(f'"control": "{host}:', f'"control": "{cluster.spare[rail]}:')
            twin = twin.replace(f'"address": "{host}"', f'"address": "{cluster.spare[rail]}"')
        twin = twin.replace(f"{cluster.hosts[2][0]}:7600", f"{cluster.spare[0]}:7600").replace(
            cluster.http(2), f"{cluster.spare[0]}:8080")
        if KIND != "shm":  # as on another host
            twin = twin.replace(cluster.fabric, cluster.fabric + "-twin")
        path = cluster.directory / "twin.json"
        path.write_text(twin)
        log = cluster.directory / "twin.log"
        with open(log, "w", encoding="utf-8") as said:
            process = subprocess.Popen([program.HOLDFAST, "kv", "--config", str(path)], cwd=directory, stdout=said,
                                       stderr=said, stdin=subprocess.DEVNULL, env=program.environment(directory))
        try:
            if KIND == "shm":  # their ports would be the same ones
                assert process.wait(LIMIT_S) == 2 and "is open in process" in log.read_text()
            else:
                cluster.wait("a refusal", lambda: any("n2 is refused: that member has another address" in cluster.log(i)
                                                      for i in (0, 1)))
            assert client.ask("GET", "key") == b"value"
        finally:
            process.kill()
            process.wait()


def writes_go_on_without_a_killed_member_and_it_returns_with_all(directory):
    with Cluster(directory, KIND, op_budget_ms=60000) as cluster:  # whatever else the machine does
        clients = [cluster.client(i) for i in range(3)]
        for i in range(50):
            assert clients[i % 3].ask("SET", f"before{i}", i) == "+OK"
        cluster.kill(2)
        for i in range(50):
            assert clients[i % 2].ask("SET", f"after{i}", i) == "+OK"
            assert clients[i % 2].ask("INCR", "counter") == i + 1
        cluster.start(2)
        cluster.wait_serving(2)
        returned = cluster.client(2)
        for i in range(50):
            assert returned.ask("GET", f"before{i}") == b"%d" % i
            assert returned.ask("GET", f"after{i}") == b"%d" % i
        assert returned.ask("INCR", "counter") == 51
        cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)


def _info(client):
    return dict(line.split(":", 1) for line in client.ask("INFO").decode().split("\r\n") if ":" in line)


def stopped_member_serves_nothing_stale_and_gets_what_it_missed(directory):
    with Cluster(directory, KIND) as cluster:
        clients = [cluster.client(i) for i in range(3)]
        for i in range(50):
            assert clients[0].ask("SET", f"key{i}", "before") == "+OK"
        cluster.signal(2, signal.SIGSTOP)
        clients[2].send("GET", "key0")  # waits in its socket, and is answered when it goes on
        clients[2].send("DBSIZE")
        for i in range(20):
            assert clients[i % 2].ask("SET", f"key{i}", "after") == "+OK"  # the first one waits for the exclusion
        assert clients[0].ask("SET", "more", "after") == "+OK"
        cluster.signal(2, signal.SIGCONT)
        for fresh in (b"after", 51):
            answer = clients[2].reply()
            assert answer == fresh or str(answer).startswith(("-LOADING", "-CLUSTERDOWN")), answer
        cluster.wait_serving(2)
        returned = cluster.client(2)
        for i in range(50):
            assert returned.ask("GET", f"key{i}") == (b"after" if i < 20 else b"before")
        said = _info(returned)
        assert (said["excluded"], said["copied"], said["healed"], said["media"]) == ("1", "0", "1", "none"), said
        cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)


def _fill(clients, first, count):
    for i in range(first, first + count):
        assert clients[i % len(clients)].ask("SET", f"key{i}", i) == "+OK"
    assert clients[0].ask("INCRBY", "counter", count) == first + count


def _check_filled(cluster, count):
    for i in range(3):
        client = cluster.client(i)
        assert client.ask("MGET", *[f"key{i}" for i in range(count)]) == [b"%d" % i for i in range(count)]
        assert client.ask("GET", "counter") == b"%d" % count
    cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)


def deleted_records_are_removed_and_stay_deleted(directory):
    with Cluster(directory, KIND, log="LOG") as cluster:
        clients = [cluster.client(i) for i in range(3)]
        _fill(clients, 0, 100)
        for i in range(100):
            assert clients[i % 3].ask("DEL", f"key{i}") == 1
        cluster.wait("no record but the counter", lambda: all(cluster.status(i)["records"] == 1 for i in range(3)))
        cluster.kill(2)
        assert clients[0].ask("SET", "key0", "again") == "+OK" and clients[1].ask("INCR", "key1") == 1
        assert clients[0].ask("DEL", "counter") == 1
        cluster.start(2)
        cluster.wait_serving(2)
        for i in range(3):
            client = cluster.client(i)
            assert client.ask("MGET", "counter", *[f"key{k}" for k in range(100)]) == [None, b"again", b"1"] + [None] * 98
        cluster.wait("nothing deleted is left", lambda: all(cluster.status(i)["records"] == 2 for i in range(3)))
        cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)


def _recoveries(cluster, settings, missed):
    """A member returns with these settings: what INFO says of it, and how many records its buddy sent."""
    clients = [cluster.client(i) for i in range(3)]
    _fill(clients, 0, 100)
    cluster.kill(2)
    for i in range(3):
        _change(cluster, i, settings)
    _fill(clients[:2], 100, missed)
    cluster.start(2)
    cluster.wait_serving(2)
    recovered, = cluster.status(2)["recoveries"]
    _check_filled(cluster, 100 + missed)
    return _info(cluster.client(2)), recovered["records"]


def member_that_is_told_to_copy_copies_all_records(directory):
    with Cluster(directory, KIND, log="LOG") as cluster:
        said, records = _recoveries(cluster, {"recovery": "copy"}, 10)
        assert (said["copied"], said["healed"]) == ("1", "0") and records == 111, (said, records)


def member_of_those_that_note_nothing_copies_all_records(directory):
    with Cluster(directory, KIND, log="LOG", unnoted=True) as cluster:
        said, records = _recoveries(cluster, {}, 10)
        assert (said["copied"], said["healed"]) == ("1", "0") and records >= 111, (said, records)
        assert "no member has the updates that n2 missed" in cluster.log(2)
        for i in range(3):
            cluster.kill(i)
        for i in range(3):
            cluster.start(i)
        for i in range(3):
            cluster.wait_serving(i)
        _check_filled(cluster, 110)


def a_full_copy_has_no_more_than_copy_mbps(directory):
    with Cluster(directory, KIND, copy_mbps=10) as cluster:
        client = cluster.client(0)
        for i in range(10):
            assert client.ask("SET", f"large{i}", b"x" * 500000) == "+OK"
        cluster.kill(2)
        cluster.start(2)
        cluster.wait_serving(2)
        recovery = cluster.status(2)["recoveries"][0]
        assert not recovery["healed"] and recovery["apply_to_end_us"] >= 400000, recovery  # 5 MB but for the first record
        assert cluster.client(2).ask("GET", "large9") == b"x" * 500000


def killed_member_with_a_log_gets_only_what_it_missed(directory):
    for medium in ("file", "memory"):
        with Cluster(directory, KIND, log="LOG", medium=medium) as cluster:
            clients = [cluster.client(i) for i in range(3)]
            _fill(clients, 0, 100)
            cluster.kill(2)
            _fill(clients[:2], 100, 30)
            cluster.start(2)
            cluster.wait_serving(2)
            said = _info(cluster.client(2))
            assert (said["copied"], said["healed"], said["media"]) == ("0", "1", medium), said
            records = re.search(r"n2 has caught up with (\d+) records", cluster.log(2))
            assert records and 31 <= int(records.group(1)) < 100, cluster.log(2)
            _check_filled(cluster, 130)


def member_that_is_told_to_end_leaves(directory):
    """Had it been killed, the others would wait for its lease."""
    with Cluster(directory, KIND, log="LOG", lease_ms=20000) as cluster:
        clients = [cluster.client(i) for i in range(3)]
        _fill(clients, 0, 100)
        for i in (2, 0):
            cluster.signal(i, signal.SIGTERM)
            assert cluster.processes[i].wait(60) == 0, cluster.log(i)
            assert cluster.status(1)["members"][i]["role"] == "absent", cluster.status(1)
            assert f"n{i} has left its cluster" in cluster.log(i), cluster.log(i)
            assert clients[1].ask("SET", "key0", "0") == "+OK"
            cluster.kill(i)
            cluster.start(i)
            cluster.wait_serving(i)
        _check_filled(cluster, 100)


def members_with_logs_that_all_end_have_everything(directory):
    with Cluster(directory, KIND, log="LOG") as cluster:
        _fill([cluster.client(i) for i in range(3)], 0, 100)
        for i in range(3):
            cluster.kill(i)
        for i in range(3):
            cluster.start(i)
        for i in range(3):
            cluster.wait_serving(i)
        _check_filled(cluster, 100)
        _fill([cluster.client(i) for i in range(3)], 100, 10)
        _check_filled(cluster, 110)


def member_with_an_older_log_brings_nothing_back(directory):
    with Cluster(directory, KIND, log="LOG") as cluster:
        clients = [cluster.client(i) for i in range(3)]
        _fill(clients, 0, 100)
        log = cluster.directory / f"log-{Cluster.made}-n2"
        shutil.copytree(log, cluster.directory / "older")
        _fill(clients, 100, 10)
        for i in range(50):
            assert clients[i % 3].ask("DEL", f"key{i}") == 1
        cluster.wait("the deleted records are removed", lambda: all(cluster.status(i)["records"] == 61 for i in range(3)))
        cluster.kill(2)
        assert clients[0].ask("SET", "key60", "later") == "+OK"
        shutil.rmtree(log)
        (cluster.directory / "older").rename(log)
        cluster.start(2)
        cluster.wait_serving(2)
        assert "no member has the updates that n2 missed" in cluster.log(2), cluster.log(2)
        for i in range(3):
            assert cluster.client(i).ask("MGET", *[f"key{k}" for k in range(110)]) == [None] * 50 + [
                b"later" if k == 60 else b"%d" % k for k in range(50, 110)]
        cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)
        cluster.kill(2)
        cluster.start(2)  # its log has it all
        cluster.wait_serving(2)
        assert cluster.client(2).ask("GET", "key0") is None and cluster.client(2).ask("GET", "key60") == b"later"
        cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)


def logs_of_others_are_refused(directory):
    with Cluster(directory, KIND, log="LOG") as cluster:
        settings = json.loads(cluster.path(0).read_text())
        cluster.kill(0)
        for change, words in ((("log", str(cluster.directory / f"log-{Cluster.made}-n1")), "another process uses the log"),
                              (("cluster", "other"), "is that of member n0 of cluster test, and this is n0 of other")):
            settings["kv"][change[0]] = change[1]
            path = cluster.directory / "wrong.json"
            path.write_text(json.dumps(settings))
            done = program.run(directory, "kv", "--config", str(path), check=2)
            assert words in done.stderr, done.stderr
            settings = json.loads(cluster.path(0).read_text())


def member_whose_disk_is_full_leaves_and_returns(directory):
    with Cluster(directory, KIND, log="LOG") as cluster:
        clients = [cluster.client(i) for i in range(3)]
        _fill(clients, 0, 10)
        cluster.limit_files(2, 64 << 10)
        for i in range(30):
            assert clients[i % 2].ask("SET", "large", b"x" * 10000) == "+OK"
        assert cluster.processes[2].wait(60) == 1
        assert "cannot be written" in cluster.log(2), cluster.log(2)
        cluster.kill(2)
        cluster.start(2)
        cluster.wait_serving(2)
        _check_filled(cluster, 10)


def programs_of_redis_run_unchanged(directory):
    if shutil.which("redis-cli") is None or shutil.which("redis-benchmark") is None:
        raise program.Skip("redis-tools is not installed (scripts/packages.txt names it)")
    with Cluster(directory, KIND, lease_ms=20000) as cluster:  # a busy machine excludes nobody: redis-benchmark gives up
        for i in range(3):
            host, port = cluster.address(i)
            for version in ("-2", "-3"):
                done = subprocess.run(["redis-cli", version, "-h", host, "-p", str(port), "INCR", "n"], text=True,
                                      capture_output=True, timeout=60, check=True)
                assert done.stdout.strip().isdigit(), done
        host, port = cluster.address(0)
        done = subprocess.run(["redis-benchmark", "-h", host, "-p", str(port), "-t", "ping,set,get,incr,mset", "-n",
                               "2000", "-c", "8", "-P", "4", "-q", "--csv"], text=True, capture_output=True, timeout=120)
        assert done.returncode == 0 and "rror" not in done.stderr + done.stdout, done
        assert done.stdout.count("\n") >= 6, done.stdout
        cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)


def _scan(client, *options):
    found, cursor = [], b"0"
    while True:
        cursor, keys = client.ask("SCAN", cursor, *options)
        found += keys
        if cursor == b"0":
            return found


def scan_lists_every_key_once(directory):
    with Cluster(directory, KIND) as cluster:
        clients = [cluster.client(i) for i in range(3)]
        for i in range(0, 300, 50):
            assert clients[0].ask("MSET", *sum(([f"key{k}", k] for k in range(i, i + 50)), [])) == "+OK"
        assert clients[1].ask("DEL", "key7", "key8") == 2
        for client in clients:
            assert sorted(_scan(client, "COUNT", 7)) == sorted(b"key%d" % k for k in range(300) if k not in (7, 8))
        assert sorted(_scan(clients[0], "MATCH", "key[12]?")) == [b"key%d" % k for k in range(10, 30)]
        assert _scan(clients[0], "TYPE", "list") == []
        assert clients[0].ask("HFSCAN", "a", "1").startswith("-ERR this member keeps no order")
        for i in range(20):  # what a connection wrote before is counted
            clients[0].send("SET", f"last{i}", "1")
            clients[0].send("DBSIZE")
            assert [clients[0].reply() for _ in range(2)] == ["+OK", 299 + i]
        for wrong in (("SCAN", "x"), ("SCAN", 0, "COUNT", 0), ("SCAN", 0, "COUNT"), ("SCAN", 0, "MATCH", "x" * 1025)):
            assert clients[0].ask(*wrong).startswith("-ERR"), wrong


def _rows(client, start, count):
    found = client.ask("HFSCAN", start, count)
    assert isinstance(found, list) and len(found) % 2 == 0 and len(found) <= 2 * count, found
    return list(zip(found[::2], found[1::2]))


def _ordered(client, count, start=b""):
    """All records from start; the order of the keys is checked."""
    found = []
    while rows := _rows(client, start, count):
        keys = [key for key, _ in rows]
        assert keys == sorted(set(keys)) and keys[0] >= start, (start, keys)
        found += rows
        start = rows[-1][0] + b"\0"
    return found


def ordered_scan_has_keys_in_the_order_of_their_bytes(directory):
    with Cluster(directory, KIND, ordered=True) as cluster:
        clients = [cluster.client(i) for i in range(3)]
        keys = [b"a", b"a\0", b"a\0\0", b"aa", b"\xff", b"\x80", b"b", b"\0", b"z" * 16384] + [b"key%d" % k for k in range(300)]
        for key in keys:
            assert clients[0].ask("SET", key, b"of " + key[:20]) == "+OK"
        expected = sorted((key, b"of " + key[:20]) for key in keys)
        for client, count in zip(clients, (1, 7, 1000)):
            assert _ordered(client, count) == expected
        assert _rows(clients[1], "a", 3) == [(b"a", b"of a"), (b"a\0", b"of a\0"), (b"a\0\0", b"of a\0\0")]
        assert clients[2].ask("HFSCAN", b"\xff\0", 1000) == []
        assert clients[0].ask("DEL", "a", "aa", "key7") == 3
        for client in clients:
            assert _ordered(client, 13) == [row for row in expected if row[0] not in (b"a", b"aa", b"key7")]
        for i in range(20):  # what a connection wrote before is there
            clients[0].send("SET", f"key7{i:02}x", i)
            clients[0].send("HFSCAN", f"key7{i:02}x", "1")
            assert [clients[0].reply() for _ in range(2)] == ["+OK", [b"key7%02dx" % i, b"%d" % i]]
        for wrong in (("HFSCAN",), ("HFSCAN", "a"), ("HFSCAN", "a", "1", "2"), ("HFSCAN", "a", "0"), ("HFSCAN", "a", "-1"),
                      ("HFSCAN", "a", "1001"), ("HFSCAN", "a", "x"), ("HFSCAN", "a", ""), ("HFSCAN", "a" * 16386, "1")):
            assert clients[0].ask(*wrong).startswith("-ERR"), wrong
        for k in range(4):  # a reply has a MiB and a record at most
            assert clients[0].ask("SET", f"large{k}", "x" * 700000) == "+OK"
        assert [key for key, _ in _rows(clients[1], "large", 4)] == [b"large0", b"large1"]
        assert len(_ordered(clients[1], 1000, b"large")) == 4 + 1 + 2  # z, 0x80, 0xff


def ordered_scan_goes_on_behind_many_deleted_records(directory):
    with Cluster(directory, KIND, ordered=True) as cluster:
        client = cluster.client(0)
        cluster.kill(2)  # while a member is away no deleted record is removed
        keys = [b"key%06d" % k for k in range(40000)]
        for first in range(0, len(keys), 1000):
            part = keys[first:first + 1000]
            assert client.ask("MSET", *(word for key in part for word in (key, b"x"))) == "+OK"
            assert client.ask("DEL", *part) == len(part)
        assert client.ask("HFSCAN", "key", 10) == []
        client.send("SET", "last", "y")
        client.send("HFSCAN", "key", 10)
        client.send("PING")
        assert [client.reply() for _ in range(3)] == ["+OK", [b"last", b"y"], "+PONG"]


def ordered_scan_misses_nothing_while_others_write(directory):
    with Cluster(directory, KIND, ordered=True) as cluster:
        client, writer = cluster.client(0), cluster.client(1)
        kept = [b"kept%03d" % k for k in range(200)]
        for key in kept:
            assert writer.ask("SET", key, "1") == "+OK"
        for turn in range(30):
            for k in range(turn % 5, 200, 5):
                writer.send("DEL" if turn % 2 else "SET", b"kept%03d+" % k, *([] if turn % 2 else ["2"]))
                writer.send("SET", b"kept%03d" % k, turn)
            found = [key for key, _ in _ordered(client, 17)]
            assert [key for key in found if not key.endswith(b"+")] == kept, (turn, found)
            for _ in range(2 * len(range(turn % 5, 200, 5))):
                writer.reply()
        cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)


def sessions_have_names_and_versions(directory):
    with Cluster(directory, KIND) as cluster:
        client, other = cluster.client(0), cluster.client(0)
        assert client.ask("CLIENT", "ID") != other.ask("CLIENT", "ID")
        assert client.ask("CLIENT", "GETNAME") is None
        assert client.ask("HELLO", "2", "AUTH", "default", "any", "SETNAME", "me")[:2] == [b"server", b"redis"]
        assert client.ask("CLIENT", "GETNAME") == b"me" and other.ask("CLIENT", "GETNAME") is None
        for wrong, error in ((("HELLO", "4"), "-NOPROTO"), (("HELLO", "2", "AUTH", "somebody", "x"), "-WRONGPASS"),
                             (("AUTH", "x"), "-ERR AUTH"), (("CLIENT", "SETNAME", "a b"), "-ERR a client's name"),
                             (("HELLO", "2", "SETNAME"), "-ERR syntax")):
            assert client.ask(*wrong).startswith(error), wrong


def status_shows_members_and_the_steps_of_a_recovery(directory):
    with Cluster(directory, KIND) as cluster:
        client = cluster.client(0)
        for i in range(100):
            assert client.ask("SET", f"key{i}", i) == "+OK"
        cluster.kill(2)
        assert client.ask("SET", "key0", "again") == "+OK"  # waits for the exclusion
        seen = cluster.status(0)
        assert [member["role"] for member in seen["members"]] == ["member", "member", "absent"], seen
        cluster.start(2)
        cluster.wait_serving(2)
        seen = cluster.status(2)
        assert seen["serving"] and seen["lease_left_ms"] > 0 and seen["keys"] == 100, seen
        assert [member["name"] for member in seen["members"]] == ["n0", "n1", "n2"]
        assert all(member["role"] == "member" and member["reached"] for member in seen["members"]), seen
        recovery, = seen["recoveries"]
        assert recovery["buddy"] in ("n0", "n1") and not recovery["healed"] and recovery["records"] == 100, recovery
        assert sum(recovery[step] for step in ("start_to_ack_us", "catch_up_to_resp_us", "apply_to_end_us")) > 0, recovery
        assert sum(cluster.status(i)["decides"] for i in range(3)) == 1
        words = program.run(directory, "kv", "status", cluster.http(2), check=0).stdout
        assert "n2: epoch" in words and "copied 100 records" in words and "start to ACK" in words, words
        assert "address" in program.run(directory, "kv", "status", check=2).stderr


def metrics_tell_what_a_member_does(directory):
    with Cluster(directory, KIND) as cluster:
        client, host = cluster.client(0), cluster.hosts[0][0]
        before = program.metrics(host)
        for i in range(30):
            assert client.ask("SET", f"k{i}", "v") == "+OK"
        for i in range(20):
            assert client.ask("GET", f"k{i}") == b"v"
        seen = program.metrics(host)
        more = {name: seen[name] - before.get(name, 0) for name in seen}
        assert seen["holdfast_kv_serving"] == 1 and seen["holdfast_kv_epoch"] > 0, seen
        assert seen["holdfast_kv_keys"] == 30 and seen["holdfast_kv_members_live"] == 3 and seen["holdfast_kv_clients"] == 1, seen
        assert more["holdfast_kv_writes_total"] == 30 and more["holdfast_kv_reads_total"] == 20, more
        assert more["holdfast_kv_commands_total"] == 50, more
        assert more["holdfast_kv_operation_seconds", "write"] == 30 and more["holdfast_kv_operation_seconds", "read"] == 20, more
        assert sum(program.metrics(hosts[0])["holdfast_kv_decides"] for hosts in cluster.hosts) == 1


def a_member_is_ready_while_it_serves(directory):
    def ready(wanted):
        status, answer = program.page(cluster.hosts[0][0], "/ready")
        return status == wanted and answer

    with Cluster(directory, "shm") as cluster:
        assert ready(200) == {"node": "n0", "ready": True, "reason": "it serves"}
        client = cluster.client(0)
        assert client.ask("PING") == "+PONG" and _info(client)["loading"] == "0"
        cluster.kill(1)
        cluster.kill(2)
        cluster.wait("n0 is cut off", lambda: ready(503))
        assert ready(503)["ready"] is False and ready(503)["reason"].startswith("CLUSTERDOWN"), ready(503)
        assert client.ask("PING").startswith("-CLUSTERDOWN ") and program.page(cluster.hosts[0][0], "/health")[0] == 200
        assert _info(client)["serving"] == "0"


def a_member_has_clients_within_its_descriptors(directory):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))

    with Cluster(directory, KIND, 1, clients=5000) as cluster:
        told = program.run(directory, "kv", "--config", str(cluster.path(0)), check=2, preexec_fn=limit).stderr
        assert all(word in told for word in ("5000 clients", "may have 1000", "LimitNOFILE", "lower `clients`")), told
    with Cluster(directory, KIND, 1) as cluster:
        assert cluster.client(0).ask("CONFIG", "GET", "maxclients") == [b"maxclients", b"10000"]


def wrong_configurations_are_refused(directory):
    path = pathlib.Path(directory) / "wrong.json"
    node = '"fabric": "wrong", "management": ["127.0.0.1:0"], "rails": [{"name": "r0", "kind": "shm"}]'
    for text, words in (('{"name": "n"}', ["kv"]),
                        ('{"name": "n", "kv": {"members": []}}', ["members"]),
                        ('{"name": "n", ' + node + ', "kv": {"members": [{"name": "m", "control": ["127.0.0.1:1"]}]}}',
                         ["not in the list of members"]),
                        ('{"name": "n", "kv": {"missed_mb": 16384, "members": [{"name": "n", "control": ["127.0.0.1:1"]}]}}',
                         ["missed_mb"]),
                        ('{"name": "n", "kv": {"cluster": "sixteen-and-more", "members": [{"name": "n", "control": ["127.0.0.1:1"]}]}}',
                         ["at most 15 bytes"]),
                        ('{"name": "n", ' + node + ', "kv": {"lease_ms": 30, "members": [{"name": "n", "control": '
                         '["127.0.0.1:1"]}]}}', ["lease_ms is 30.0", "falls silent", "above 33.6"]),
                        ('{"name": "n", ' + node + ', "kv": {"cores": "owned", "suspect_ms": 20, "members": [{"name": "n", "control": '
                         '["127.0.0.1:1"]}]}}', ["suspect_ms is 20.0", "above 20.0"]),
                        ('{"name": "n", ' + node + ', "kv": {"lease_ms": 50, "suspect_ms": 11, "members": [{"name": "n", '
                         '"control": ["127.0.0.1:1"]}]}}', ["suspect_ms is 11.0", "falls silent", "above 16.8"]),
                        ('{"name": "n", "kv": {"min_members": 9, "members": [{"name": "n", "control": ["127.0.0.1:1"]}]}}',
                         ["min_members"])):
        path.write_text(text)
        done = program.run(directory, "kv", "--config", str(path), check=2)
        assert all(word in done.stderr for word in words), done.stderr
    assert "--config" in program.run(directory, "kv", check=2).stderr


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
