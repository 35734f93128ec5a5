"""The operator's commands, while a demo runs: links.py HOLDFAST."""
import json
import signal
import sys

import program


def _demo(directory, device="shm"):
    process = program.start(directory, "demo", "--seconds", "60", "--device", device, "--input",
                            program.make_input(directory))
    program.read_until(process, ["traffic on"])
    return process


def _links(directory, process, *arguments):
    found = json.loads(program.run(directory, "links", "--json", *arguments, check=0).stdout)
    return {f"{link['node']}/{link['rail']}": link for link in found
            if link["fabric"].startswith(f"demo-{process.pid}-")}


def _end(process):
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=program.RUN_LIMIT_S)


def links_of_a_running_demo_are_listed(directory):
    for device in ("shm", "soft"):
        process = _demo(directory, device)
        links = _links(directory, process)
        _end(process)
        assert sorted(links) == ["a/r0", "a/r1", "b/r0", "b/r1"]
        for link in links.values():
            assert link["device"] == device and link["alive"]
        assert _links(directory, process) == {}


def table_and_json_agree(directory):
    process = _demo(directory)
    fabric = next(iter(_links(directory, process).values()))["fabric"]
    table = program.run(directory, "links", "--fabric", fabric, check=0).stdout
    _end(process)
    assert table.startswith("FABRIC")
    for name in ("a/r0", "a/r1", "b/r0", "b/r1"):
        assert name in table


def an_unknown_link_is_refused_and_the_known_are_named(directory):
    process = _demo(directory)
    fabric = next(iter(_links(directory, process).values()))["fabric"]
    done = program.run(directory, "link", "down", "a/r7", "--fabric", fabric)
    _end(process)
    assert done.returncode == 2 and "a/r7" in done.stderr and "a/r0" in done.stderr, done.stderr


def a_link_is_switched_by_hand(directory):
    process = _demo(directory)
    process.send_signal(signal.SIGSTOP)  # it cuts and restores no more; its nodes go on
    fabric = next(iter(_links(directory, process).values()))["fabric"]
    switched = json.loads(program.run(directory, "link", "down", "b/r1", "--direction", "rx", "--json", "--fabric",
                                      fabric, check=0).stdout)
    down = _links(directory, process)["b/r1"]
    words = program.run(directory, "link", "up", "b/r1", "--fabric", fabric, check=0).stdout
    up = _links(directory, process)["b/r1"]
    _end(process)
    assert switched == {"fabric": fabric, "node": "b", "rail": "r1", "direction": "rx", "up": False}
    assert not down["rx_up"]
    assert "b/r1" in words and "up" in words
    assert up["rx_up"] and up["tx_up"] and up["state"] == "up"


def a_rate_is_set_on_a_soft_link_and_refused_elsewhere(directory):
    process = _demo(directory, "soft")
    fabric = next(iter(_links(directory, process).values()))["fabric"]
    words = program.run(directory, "link", "rate", "a/r1", "50", "--fabric", fabric, check=0).stdout
    bound = _links(directory, process)["a/r1"]
    table = program.run(directory, "links", "--fabric", fabric, check=0).stdout
    program.run(directory, "link", "rate", "a/r1", "off", "--fabric", fabric, check=0)
    free = _links(directory, process)["a/r1"]
    _end(process)
    assert "at most 50 MB/s" in words and "at most 50 MB/s" in table, words + table
    assert bound["mb_per_s"] == 50 and free["mb_per_s"] == 0
    process = _demo(directory, "shm")
    fabric = next(iter(_links(directory, process).values()))["fabric"]
    done = program.run(directory, "link", "rate", "a/r1", "50", "--fabric", fabric)
    _end(process)
    assert done.returncode == 2 and "kind shm have no rate" in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
