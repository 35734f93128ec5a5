"""`kill -9` of either side of a `holdfast transfer` at random moments: transfer_killed.py HOLDFAST [MOMENTS].

The moments are drawn from SEED (printed): a share of the bytes that is on disk at the receiver.
"""
import os
import pathlib
import random
import signal
import struct
import sys
import time

import program
import transfer

SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))
MOMENTS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
MIB = 1 << 20
BIG, RATE = 32 * MIB, "60"
CHUNK = MIB
END_LIMIT_S = 60
FILE, HAVE = 2, 3


def _records(journal):
    """The messages of a journal, up to one that is torn."""
    text = journal.read_bytes() if journal.exists() else b""
    at = 16
    while at + 8 <= len(text):
        size, = struct.unpack_from("<I", text, at)
        if at + 8 + size > len(text):
            break
        yield text[at + 8:at + 8 + size]
        at += 8 + size


def _journaled(journal):
    """Bytes that a journal has, by what its records say."""
    sizes, have = {}, {}
    for message in _records(journal):
        if message[0] == FILE:
            number, _, _, _, size, _, _, length = struct.unpack_from("<IBBIQQQH", message, 1)
            name = message[37:37 + length]
            for other, (_, known) in list(sizes.items()):
                if known == name:
                    del sizes[other]
            sizes[number] = (size, name)
            have[number] = set()
        elif message[0] == HAVE:
            number, begin, end = struct.unpack_from("<IQQ", message, 1)
            have[number] |= set(range(begin, end))
    return sum(min(CHUNK, size - chunk * CHUNK) for number, (size, _) in sizes.items() for chunk in have[number])


def _on_disk(pair):
    """Bytes of files that the receiver has written, whole or not."""
    return sum(path.stat().st_blocks * 512 for path in pair.into.rglob("*") if path.is_file())


def _wait_for_bytes(pair, least, *processes):
    limit = time.monotonic() + END_LIMIT_S
    while _on_disk(pair) < least and all(process.poll() is None for process in processes):
        assert time.monotonic() < limit, f"{_on_disk(pair)} of {least} bytes within {END_LIMIT_S} s"
        os.sched_yield()


def _check_rest(pair, source, total):
    """The next run sends what the journal lacks, and no more."""
    journaled = _journaled(pair.journal("set"))
    done = pair.send("set")
    assert done["kept_bytes"] == journaled, f"{done['kept_bytes']} kept, the journal had {journaled}"
    assert done["sent_bytes"] == total - journaled
    transfer._same(source, pair.into / "set")
    return journaled


def _prepare(directory, turn):
    source = pathlib.Path(directory) / "set"
    if not source.exists():
        transfer._make_tree(source, BIG)
    total = sum(path.stat().st_size for path in source.rglob("*") if path.is_file() and not path.is_symlink())
    return source, total, random.Random(f"{SEED} {turn}").random()


def _clear(pair):
    import shutil
    for path in pair.into.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _report(turn, side, share, journaled, total, took_s):
    program.say(f"# {turn}: {side} killed at {share:.2f}: the other said so after {took_s:.2f} s; "
                f"{journaled} of {total} bytes were in the journal")


def a_sender_killed_at_any_moment_is_told_and_the_next_sends_the_rest(directory):
    for turn in range((MOMENTS + 1) // 2):
        source, total, share = _prepare(directory, f"sender {turn}")
        with transfer._Pair(directory) as pair:
            receiver = pair.receive()
            sender = pair.start_send("set", "--rate", RATE)
            program.read_until(receiver, ["receiving it"])
            _wait_for_bytes(pair, share * total, sender)
            sender.send_signal(signal.SIGKILL)
            sender.communicate()
            killed = time.monotonic()
            line = receiver.stdout.readline()
            took_s = time.monotonic() - killed
            if "verified" in line:  # it had ended before it was killed
                _clear(pair)
                continue
            assert "ended" in line and "the sender is gone" in line, line
            journaled = _check_rest(pair, source, total)
            _report(turn, "sender", share, journaled, total, took_s)
            _clear(pair)


def a_receiver_killed_at_any_moment_is_told_and_the_next_takes_the_rest(directory):
    for turn in range(MOMENTS // 2):
        source, total, share = _prepare(directory, f"receiver {turn}")
        with transfer._Pair(directory) as pair:
            receiver = pair.receive()
            sender = pair.start_send("set", "--rate", RATE)
            program.read_until(receiver, ["receiving it"])
            _wait_for_bytes(pair, share * total, sender)
            receiver.send_signal(signal.SIGKILL)
            killed = time.monotonic()
            receiver.communicate()
            _, errors = sender.communicate(timeout=END_LIMIT_S)
            took_s = time.monotonic() - killed
            if sender.returncode == 0 or (pair.into / "set").exists():  # it had ended before, or all but its answer
                _clear(pair)
                continue
            assert sender.returncode == 1 and "the receiver" in errors, errors
            pair.receive()
            journaled = _check_rest(pair, source, total)
            _report(turn, "receiver", share, journaled, total, took_s)
            _clear(pair)


def a_sender_that_starts_again_at_once_takes_over(directory):
    source, total, share = _prepare(directory, "takeover")
    with transfer._Pair(directory) as pair:
        receiver = pair.receive()
        sender = pair.start_send("set", "--rate", "10")  # it is not to end before it is killed
        program.read_until(receiver, ["receiving it"])
        _wait_for_bytes(pair, share * total / 2, sender)
        sender.send_signal(signal.SIGKILL)
        sender.communicate()
        done = pair.send("set")
        assert done["sent_bytes"] + done["kept_bytes"] == total
        transfer._same(source, pair.into / "set")


def what_the_source_has_no_longer_is_not_in_the_copy(directory):
    source = pathlib.Path(directory) / "set"
    transfer._make(source / "a", 2 * MIB)
    transfer._make(source / "b" / "c" / "part", 40 * MIB)
    transfer._make(source / "d", MIB)
    with transfer._Pair(directory) as pair:
        receiver = pair.receive()
        sender = pair.start_send("set", "--rate", "10")
        program.read_until(receiver, ["receiving it"])
        _wait_for_bytes(pair, 8 * MIB, sender)
        sender.send_signal(signal.SIGKILL)
        sender.communicate()
        (source / "b" / "c" / "part").unlink()
        (source / "b" / "c").rmdir()
        pair.send("set")
        transfer._same(source, pair.into / "set")


def a_receiver_restarted_at_the_address_gets_nothing_of_its_predecessor(directory):
    _, total, share = _prepare(directory, "predecessor")
    with transfer._Pair(directory) as pair:
        receiver = pair.receive()
        sender = pair.start_send("set", "--rate", "10")  # it is not to end before it is killed
        program.read_until(receiver, ["receiving it"])
        _wait_for_bytes(pair, share * total / 2, sender)
        receiver.send_signal(signal.SIGKILL)
        receiver.communicate()
        (pair.directory / "other").mkdir()
        pair.receiver = program.start(directory, "transfer", "receive", "other", "--config", "b.json")
        program.read_until(pair.receiver, ["ready to receive"])
        _, errors = sender.communicate(timeout=END_LIMIT_S)
        assert sender.returncode == 1 and "the receiver" in errors, errors
        said = pair.stop()
        assert "receiving it" not in said, said
        assert list((pair.directory / "other").iterdir()) == []


if __name__ == "__main__":
    program.say(f"# SEED={SEED}")
    sys.exit(program.main(sys.modules[__name__], 2))
