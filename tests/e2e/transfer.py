"""`holdfast transfer` between two processes: transfer.py HOLDFAST."""
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time

import program

SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))
END_LIMIT_S = 60
MIB = 1 << 20


class _Pair:
    """Two configurations with two soft rails and a management network, on addresses of their own."""

    def __init__(self, directory, rails=2, **more):
        self.directory = pathlib.Path(directory)
        self.name = f"transfer-{os.getpid()}-{random.randrange(1 << 30)}"
        net = f"127.{random.randrange(128, 192)}.{random.randrange(256)}"
        self.control = []
        for node, first in (("a", 16), ("b", 32)):
            config = {"name": node, "fabric": self.name, "management": [f"{net}.{first}:18515"],
                      "http": f"{net}.{first}:9400",
                      "rails": [{"name": f"r{i}", "kind": "soft", "address": f"{net}.{first + 1 + i}",
                                 "control": f"{net}.{first + 1 + i}:18515"} for i in range(rails)], **more}
            (self.directory / f"{node}.json").write_text(json.dumps(config))
            if node == "b":
                self.control = [rail["control"] for rail in config["rails"]] + config["management"]
        self.into = self.directory / "into"
        self.into.mkdir(exist_ok=True)
        self.receiver = None

    def receive(self, *options):
        self.receiver = program.start(self.directory, "transfer", "receive", "into", "--config", "b.json", *options)
        if "--json" not in options:
            program.read_until(self.receiver, ["ready to receive"])
        return self.receiver

    def _words(self, path, options):
        return ["transfer", "send", str(path), ",".join(self.control), "--config", "a.json", *options]

    def send(self, path, *options, check=0):
        done = program.run(self.directory, *self._words(path, ("--json", *options)), check=check)
        return json.loads(done.stdout) if check == 0 else done

    def start_send(self, path, *options):
        return program.start(self.directory, *self._words(path, options))

    def link(self, way, *links):
        for link in links:
            program.run(self.directory, "link", way, link, "--fabric", self.name, check=0)

    def stop(self):
        if self.receiver is not None:
            self.receiver.send_signal(signal.SIGINT)
            said, errors = self.receiver.communicate(timeout=END_LIMIT_S)
            self.receiver = None
            return said + errors
        return ""

    def journal(self, name):
        return self.into / ".holdfast" / f"{name}.journal"

    def part(self, name):
        return self.into / ".holdfast" / f"{name}.part"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.receiver is not None:
            self.receiver.kill()
            self.receiver.communicate()
        shutil.rmtree(f"/dev/shm/holdfast-{os.getuid()}-{self.name}", ignore_errors=True)


def _make(path, size, seed=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(seed).randbytes(size))


def _make_tree(root, big=24 * MIB):
    _make(root / "big", big)
    _make(root / "odd" / "chunk and one", MIB + 1)
    _make(root / "odd" / "chunk", MIB)
    _make(root / "odd" / "b\u00e4r", 5)
    _make(root / "empty", 0)
    (root / "nothing" / "in here").mkdir(parents=True)
    (root / "odd" / "script").write_text("#!/bin/sh\n")
    (root / "odd" / "script").chmod(0o755)
    (root / "link").symlink_to("big")


def _hashes(root):
    """Of files, by name; of directories, their names."""
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            for path in sorted(root.rglob("*")) if not path.is_symlink()}


def _same(source, copy):
    assert _hashes(source) == _hashes(copy)
    for path in source.rglob("*"):
        there = copy / path.relative_to(source)
        if path.is_symlink():
            assert os.readlink(there) == os.readlink(path)
        elif path.is_file():
            assert there.stat().st_mode == path.stat().st_mode and there.stat().st_mtime_ns == path.stat().st_mtime_ns
        elif path.is_dir():
            assert there.stat().st_mode == path.stat().st_mode and there.stat().st_mtime_ns == path.stat().st_mtime_ns, path


def _left_over(pair):
    return sorted(path.name for path in pair.into.iterdir() if path.name.startswith("."))


def a_directory_arrives_whole(directory):
    source = pathlib.Path(directory) / "set"
    _make_tree(source)
    with _Pair(directory) as pair:
        pair.receive()
        done = pair.send("set/")
        _same(source, pair.into / "set")
        assert done["phase"] == "done" and done["sent_bytes"] == done["bytes"] and done["kept_bytes"] == 0
        assert done["files"] == done["files_verified"] == 11 and done["left_out"] == 0
        carried = sum(rail["bytes"] for rail in done["rails"]) + done["tcp_bytes"]
        assert done["bytes"] < carried < done["bytes"] + 65536, "packs have heads"
        assert _left_over(pair) == []
        assert "verified by SHA-256" in pair.stop()


def a_file_of_each_odd_size_arrives(directory):
    with _Pair(directory) as pair:
        pair.receive()
        for size in (0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB + 7):
            path = pathlib.Path(directory) / f"file-{size}"
            _make(path, size)
            assert pair.send(path)["bytes"] == size
            assert (pair.into / path.name).read_bytes() == path.read_bytes()


def many_small_files_arrive_in_packs(directory):
    source = pathlib.Path(directory) / "set"
    for i in range(3000):
        _make(source / f"d{i % 50}" / f"f{i}", (i * 37) % 9000, seed=i)
    for size in (256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1):
        _make(source / f"size-{size}", size)
    (source / "d7" / "f7").chmod(0o440)
    with _Pair(directory) as pair:
        pair.receive()
        done = pair.send("set")
        _same(source, pair.into / "set")
        assert done["files_verified"] == done["files"] == 3000 + 50 + 3 + 1 and done["sent_bytes"] == done["bytes"]
        shutil.rmtree(pair.into / "set")
        assert pair.send("set", "--rate", "20")["sent_bytes"] == done["bytes"]
        _same(source, pair.into / "set")


def modes_of_directories_are_kept(directory):
    source = pathlib.Path(directory) / "set"
    modes = {"closed/inner": 0o500, "closed": 0o555, "shared": 0o1777, "group": 0o2750, "own": 0o700, ".": 0o550}
    for name in modes:
        _make(source / name / "file", 5)
    for name, mode in modes.items():
        (source / name).chmod(mode)
    with _Pair(directory) as pair:
        pair.receive()
        pair.send("set")
        for name, mode in modes.items():
            assert (pair.into / "set" / name).stat().st_mode & 0o7777 == mode, name
        _same(source, pair.into / "set")
    for root in (source, pair.into / "set"):
        for name in reversed(modes):
            (root / name).chmod(0o755)


def sparse_files_stay_sparse(directory):
    """A large one, one of a pack, one that ends in a hole; also when the second attempt ends a copy."""
    source = pathlib.Path(directory) / "set"
    source.mkdir()
    draw = random.Random(5)
    for name, size, places in (("image", 512 * MIB, (0, 77 * MIB + 4096, 300 * MIB + 12345)),
                               ("small", 200 * 1024, (100 * 1024,)), ("tail", 3 * MIB, (0,))):
        with open(source / name, "wb") as file:
            file.truncate(size)
            for place in places:
                file.seek(place)
                file.write(draw.randbytes(5000))
        if (source / name).stat().st_blocks * 512 >= size:
            raise program.Skip("this file system has no holes")
    _make(source / "full", 2 * MIB)
    with open(source / "zeros", "wb") as file:
        file.write(bytes(2 * MIB))
    with _Pair(directory) as pair:
        pair.receive()
        done = pair.send("set")
        carried = sum(rail["bytes"] for rail in done["rails"]) + done["tcp_bytes"]
        assert carried < 12 * MIB, carried
        _same(source, pair.into / "set")
        for path in source.iterdir():
            there = (pair.into / "set" / path.name).stat()
            assert there.st_blocks <= path.stat().st_blocks + 64, (path, there.st_blocks, path.stat().st_blocks)


def a_change_whose_time_was_put_back_is_told(directory):
    """Of a large file while it is read: its size, time of modification and inode are as they were."""
    path = pathlib.Path(directory) / "file"
    _make(path, 40 * MIB)
    with _Pair(directory) as pair:
        pair.receive()
        sender = pair.start_send("file", "--rate", "10")
        program.read_until(sender, ["now over"])
        times = path.stat()
        with open(path, "r+b") as file:
            file.seek(39 * MIB)
            file.write(b"other")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        said, errors = sender.communicate(timeout=END_LIMIT_S)
        assert sender.returncode == 1 and "has changed while it was sent" in errors, said + errors
        pair.send("file", check=None)  # what was sent of it may be of before
        if not (pair.into / "file").exists():
            pair.send("file")
        assert (pair.into / "file").read_bytes() == path.read_bytes()


def names_that_are_no_utf_8_arrive(directory):
    source = pathlib.Path(directory) / "set\udcff"
    source.mkdir()
    _make(source / "file\udcfe", MIB)
    with _Pair(directory) as pair:
        pair.receive("--json", "--once")
        assert pair.send(source)["name"] == "set?"
        _same(source, pair.into / source.name)
        received = json.loads(pair.receiver.communicate(timeout=60)[0])
        assert received["done"] and received["name"] == "set?", received


def without_rails_tcp_carries_all(directory):
    _make(pathlib.Path(directory) / "file", 5 * MIB)
    with _Pair(directory, rails=0) as pair:
        pair.receive()
        assert pair.send("file")["tcp_bytes"] == 5 * MIB


def an_engines_file_names_that_of_the_node(directory):
    _make(pathlib.Path(directory) / "file", 3 * MIB)
    with _Pair(directory) as pair:
        (pair.directory / "engine.json").write_text(json.dumps(
            {"node": "a.json", "transports": {"rdma": {"enable": False}}}))
        pair.receive()
        done = program.run(directory, "transfer", "send", "file", ",".join(pair.control), "--engine", "engine.json",
                           "--json", check=0)
        assert json.loads(done.stdout)["tcp_bytes"] == 3 * MIB, "its rails are not to be used"
        (pair.directory / "engine.json").write_text(json.dumps({"node": "a.json", "transports": {"rdma": {"lanes": 1}}}))
        done = program.run(directory, "transfer", "send", "file", ",".join(pair.control), "--engine", "engine.json",
                           check=2)
        assert "engine.json" in done.stderr and "transports.rdma.lanes" in done.stderr, done.stderr


def cut_rails_hand_over_to_tcp_and_carry_the_rest(directory):
    source = pathlib.Path(directory) / "set"
    _make_tree(source, 96 * MIB)
    with _Pair(directory) as pair:
        pair.receive()
        sender = pair.start_send("set", "--rate", "15")  # it is to last until the rails carry again
        links = ["a/r0", "a/r1", "b/r0", "b/r1"]
        program.read_until(sender, ["now over", "soft"])
        pair.link("down", *links)
        program.read_until(sender, ["now over tcp"])
        pair.link("up", *links)
        line = program.read_until(sender, ["now over", "soft"])
        assert "moved" in line
        said, errors = sender.communicate(timeout=END_LIMIT_S)
        assert sender.returncode == 0, said + errors
        _same(source, pair.into / "set")


def a_target_that_exists_is_left_alone(directory):
    _make(pathlib.Path(directory) / "file", 100)
    with _Pair(directory) as pair:
        pair.receive()
        (pair.into / "file").write_text("mine")
        done = pair.send("file", check=1)
        assert "exists there" in done.stderr and (pair.into / "file").read_text() == "mine"
        assert _left_over(pair) == []


def a_source_that_changes_meanwhile_is_told(directory):
    path = pathlib.Path(directory) / "file"
    _make(path, 40 * MIB)
    with _Pair(directory) as pair:
        pair.receive()
        sender = pair.start_send("file", "--rate", "10")
        program.read_until(sender, ["now over"])
        with open(path, "ab") as file:
            file.write(b"more")
        os.utime(path)
        said, errors = sender.communicate(timeout=END_LIMIT_S)
        assert sender.returncode == 1 and "has changed while it was sent" in errors, said + errors
        done = pair.send("file")
        assert done["kept_bytes"] == 0, "what arrived was of another file"
        assert (pair.into / "file").read_bytes() == path.read_bytes()


def a_file_that_vanishes_meanwhile_is_told(directory):
    source = pathlib.Path(directory) / "set"
    _make(source / "a", 8 * MIB)
    _make(source / "z", 3 * MIB)
    with _Pair(directory) as pair:
        receiver = pair.receive()
        sender = pair.start_send("set", "--rate", "4")
        program.read_until(receiver, ["receiving it"])
        (source / "z").unlink()
        said, errors = sender.communicate(timeout=END_LIMIT_S)
        assert sender.returncode == 1 and "z cannot be read" in errors, said + errors


def the_status_of_a_sender_tells_of_its_rails(directory):
    _make(pathlib.Path(directory) / "file", 60 * MIB)
    with _Pair(directory) as pair:
        pair.receive()
        sender = pair.start_send("file", "--rate", "8")
        program.read_until(sender, ["now over", "soft"])
        found = json.loads(program.run(directory, "transfer", "status", "--config", "a.json", "--json", check=0).stdout)
        words = program.run(directory, "transfer", "status", "--config", "a.json", check=0).stdout
        assert found["node"] == "a" and found["peers"][0]["peer"] == "b" and found["peers"][0]["up"]
        assert {rail["rail"] for rail in found["peers"][0]["rails"]} == {"r0", "r1"}
        for word in ("node a:", "peer b: up", "r0", "r1", "healthy", "TCP"):
            assert word in words, words
        assert sender.wait(END_LIMIT_S) == 0
        gone = program.run(directory, "transfer", "status", "--config", "a.json", check=1)
        assert "cannot be reached" in gone.stderr


def nobody_at_the_address_is_told(directory):
    _make(pathlib.Path(directory) / "file", 100)
    with _Pair(directory) as pair:
        done = pair.send("file", "--timeout", "1", check=1)
        assert "no receiver answers at" in done.stderr


def a_directory_that_cannot_be_written_is_told(directory):
    _make(pathlib.Path(directory) / "file", 100)
    with _Pair(directory) as pair:
        pair.receive()
        if os.getuid() == 0:
            pair.into.rmdir()
        else:
            pair.into.chmod(0o500)
        done = pair.send("file", check=1)
        assert "cannot be received" in done.stderr, done.stderr


def a_link_in_the_place_of_the_copy_is_not_followed(directory):
    _make_tree(pathlib.Path(directory) / "set", 2 * MIB)
    with _Pair(directory) as pair:
        pair.receive()
        elsewhere = pair.directory / "elsewhere"
        elsewhere.mkdir()
        pair.part("set").parent.mkdir(mode=0o700)
        pair.part("set").symlink_to(elsewhere)
        done = pair.send("set", check=1)
        assert "Not a directory" in done.stderr, done.stderr
        shutil.rmtree(pair.part("set").parent)
        pair.part("set").parent.symlink_to(elsewhere)
        done = pair.send("set", check=1)
        assert "alone writes in" in done.stderr, done.stderr
        assert list(elsewhere.iterdir()) == []


def names_of_the_receivers_own_files_are_refused(directory):
    for name in (".holdfast", ".w.holdfast-part", ".w.holdfast-journal", "set/a/.holdfast", "set/.w.holdfast-part"):
        _make(pathlib.Path(directory) / name, 100)
    with _Pair(directory) as pair:
        for name in (".holdfast", ".w.holdfast-part", ".w.holdfast-journal", "set"):
            assert "a name of a receiver's own files" in pair.send(name, check=2).stderr


def _make_cache(cache):
    """As Hugging Face's: a snapshot is links to blobs."""
    for i in range(3):
        _make(cache / "blobs" / f"{i:064x}", MIB // 2 + i, seed=i)
    snapshot = cache / "snapshots" / "abc"
    (snapshot / "sub").mkdir(parents=True)
    for i, name in enumerate(("config.json", "model.safetensors")):
        (snapshot / name).symlink_to(f"../../blobs/{i:064x}")
    (snapshot / "sub" / "vocab").symlink_to(f"../../../blobs/{2:064x}")
    _make(cache / "refs" / "main", 40)
    return snapshot


def a_cache_of_links_to_blobs_arrives_as_links(directory):
    cache = pathlib.Path(directory) / "models--x"
    snapshot = _make_cache(cache)
    with _Pair(directory) as pair:
        pair.receive()
        assert pair.send(cache)["left_out"] == 0
        _same(cache, pair.into / "models--x")
        there = pair.into / "models--x" / "snapshots" / "abc"
        for name in ("config.json", "model.safetensors", "sub/vocab"):
            assert (there / name).is_symlink() and (there / name).read_bytes() == (snapshot / name).read_bytes()


def a_snapshot_alone_is_followed_by_option_and_else_not_whole(directory):
    snapshot = _make_cache(pathlib.Path(directory) / "models--x")
    with _Pair(directory) as pair:
        pair.receive()
        done = pair.send(snapshot, check=1)
        assert json.loads(done.stdout)["left_out"] == 3, done.stdout
        assert done.stderr.count("a link that leads out of the copy; --copy-links sends what it leads to") == 3
        shutil.rmtree(pair.into / "abc")
        for option in ("-L", "--copy-links"):
            assert pair.send(snapshot, option)["left_out"] == 0
            for name in ("config.json", "model.safetensors", "sub/vocab"):
                copy = pair.into / "abc" / name
                assert not copy.is_symlink() and copy.read_bytes() == (snapshot / name).read_bytes()
            shutil.rmtree(pair.into / "abc")


def a_link_that_is_followed_in_a_circle_or_to_nowhere_is_told(directory):
    source = pathlib.Path(directory) / "set"
    _make(source / "a" / "file", 5)
    (source / "a" / "up").symlink_to("..")
    (source / "gone").symlink_to("nowhere")
    with _Pair(directory) as pair:
        pair.receive()
        done = pair.send(source, "-L", check=1)
        assert json.loads(done.stdout)["left_out"] == 2
        assert done.stderr.count("a link that leads nowhere, or to a directory that it is in") == 2
        assert sorted(_hashes(pair.into / "set")) == ["a", "a/file"]
        shutil.rmtree(pair.into / "set")
        assert pair.send(source)["left_out"] == 0  # as links they are whole
        _same(source, pair.into / "set")


def each_thing_that_is_left_out_is_told(directory):
    import socket
    source = pathlib.Path(directory) / "set"
    _make(source / "file", 5)
    os.mkfifo(source / "pipe")
    here = os.getcwd()
    os.chdir(source)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("sock")
    os.chdir(here)
    (source / "absolute").symlink_to("/etc/hostname")
    expected = ["set/pipe: a pipe", "set/sock: a socket", "set/absolute: a link that leads out of the copy"]
    if os.getuid() == 0 and os.path.exists("/dev/null"):
        os.mknod(source / "null", 0o600 | 0o020000, os.makedev(1, 3))
        expected.append("set/null: a device")
    with _Pair(directory) as pair:
        pair.receive()
        done = pair.send("set", check=1)
        found = json.loads(done.stdout)
        assert found["phase"] == "done" and found["left_out"] == len(expected), done.stdout
        for words in expected:
            assert f"left out: {words}" in done.stderr, done.stderr
        assert sorted(_hashes(pair.into / "set")) == ["file"]


def what_this_user_cannot_read_is_left_out_and_told(directory):
    source = pathlib.Path(directory) / "set"
    _make(source / "file", 5)
    _make(source / "secret", 5)
    _make(source / "closed" / "file", 5)
    (source / "secret").chmod(0)
    (source / "closed").chmod(0)
    as_other = {}
    if os.getuid() == 0:
        as_other = {"user": 65534, "group": 65534, "extra_groups": []}
        os.chmod(directory, 0o755)
        for path in (source, source / "file"):
            path.chmod(0o755)
    with _Pair(directory) as pair:
        pair.receive()
        try:
            done = program.run(directory, *pair._words("set", ("--json",)), check=1, **as_other)
        except PermissionError:
            raise program.Skip("another user cannot run the program here")
        finally:
            (source / "closed").chmod(0o700)
        if "--config" in done.stderr or "fabric" in done.stderr:
            raise program.Skip(f"another user cannot open the devices here: {done.stderr}")
        assert json.loads(done.stdout)["left_out"] == 2, done.stdout
        assert "left out: set/secret: not readable by this user" in done.stderr, done.stderr
        assert "left out: set/closed: a directory that is not readable by this user" in done.stderr, done.stderr
        assert sorted(_hashes(pair.into / "set")) == ["file"]


def a_full_disk_is_told(directory):
    """A tmpfs of 8 MiB in a mount namespace of the receiver's own."""
    import subprocess
    if os.getuid() != 0 or shutil.which("unshare") is None:
        raise program.Skip("mounting a small file system needs root and unshare(1)")
    _make(pathlib.Path(directory) / "file", 24 * MIB)
    with _Pair(directory) as pair:
        probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", str(pair.into)], capture_output=True)
        if probe.returncode != 0:
            raise program.Skip("no tmpfs can be mounted here")
        pair.receiver = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=8m none into && exec "$0" "$@"', program.HOLDFAST,
             "transfer", "receive", "into", "--config", "b.json"], cwd=directory, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        program.read_until(pair.receiver, ["ready to receive"])
        done = pair.send("file", check=1)
        assert "No space left on device" in done.stderr, done.stderr


def the_demo_goes_over_rails_then_tcp_then_rails(directory):
    done = program.run(directory, "demo", "transfer", "--quick", "--json", check=0)
    result = json.loads(done.stdout)
    assert result["good"] and result["hash_equal"] and result["files"] == 8 and result["differ"] == 0
    assert sum(result["rail_bytes"]) >= result["bytes"] / 4 and result["tcp_bytes"] > 0
    assert result["over_tcp_ms"] >= 0 and result["over_rails_ms"] >= 0
    program.say(f"# in flight at the cut: {result['in_flight_at_cut']}, failovers: {result['failovers']}")
    assert program.left_in(directory) == []


def the_demo_of_a_path_of_ones_own_says_lines(directory):
    _make_tree(pathlib.Path(directory) / "set", 80 * MIB)
    done = program.run(directory, "demo", "transfer", "--input", "set/", "--rate", "15", check=0)
    for words in ("both rails cut", "tcp carries", "both rails restored", "the rails carry again", "Nothing was lost"):
        assert words in done.stdout, done.stdout


def the_demo_draws_on_a_terminal(directory):
    import pty
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(directory)
        os.execve(program.HOLDFAST, ["holdfast", "demo", "transfer", "--quick"],
                  dict(program.environment(directory), TERM="xterm"))
    seen = b""
    try:
        while piece := os.read(terminal, 65536):
            seen += piece
    except OSError:  # the other end of the terminal is closed
        pass
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    seen = seen.decode()
    assert status == 0, seen[-2000:]
    assert seen.count("\033[7A") > 5 and seen.count("\033[?25l") == seen.count("\033[?25h")
    for words in ("both rails carry", "both rails are CUT", "the rails are back", "soft r0", "tcp"):
        assert words in seen, words


def wrong_words_are_refused(directory):
    _make(pathlib.Path(directory) / "file", 100)
    with _Pair(directory) as pair:
        for words, said in (
                ([], "say send, receive or status"),
                (["copy"], "'copy' is none of send, receive, status"),
                (["send", "file"], "--config"),
                (["send", "file", "--config", "a.json"], "give what is sent and to which receiver"),
                (["send", "file", "nowhere", "--config", "a.json"], "'nowhere' is not an address and port"),
                (["send", "file", "127.0.0.1", "--config", "a.json"], "is not an address and port"),
                (["send", "missing", pair.control[0], "--config", "a.json"], "missing cannot be read"),
                (["send", ".", pair.control[0], "--config", "a.json"], "does not end in a name"),
                (["send", "/dev/null", pair.control[0], "--config", "a.json"], "neither a file nor a directory"),
                (["send", "file", pair.control[0], "--config", "missing.json"], "missing.json"),
                (["send", "file", pair.control[0], "--config", "a.json", "--once"], "an option of the receiver"),
                (["send", "file", pair.control[0], "--config", "a.json", "--rate", "-1"], "is not a number"),
                (["send", "file", pair.control[0], "--config", "a.json", "--fallback", "no"], "none of auto, off, required"),
                (["status"], "give the `http` address"),
                (["status", "nowhere"], "is not an address and port"),
                (["receive", "missing", "--config", "b.json"], "no directory 'missing'"),
                (["receive", "into", "--config", "b.json", "--rate", "1"], "an option of the sender")):
            done = program.run(directory, "transfer", *words, check=2)
            assert said in done.stderr, (words, done.stderr)


if __name__ == "__main__":
    program.say(f"# SEED={SEED}")
    sys.exit(program.main(sys.modules[__name__], 2))
