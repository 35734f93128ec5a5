"""A receiver that finds foreign or damaged files of its own: transfer_trust.py HOLDFAST."""
import json
import os
import pathlib
import random
import shutil
import signal
import sys

import program
import transfer
import transfer_killed

SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))
MIB = 1 << 20
PAGE = 4096


def _interrupt(pair, least):
    """A copy of `set` that ends when `least` bytes are on disk at the receiver, whose `a` is whole there by then."""
    receiver = pair.receive()
    sender = pair.start_send("set", "--rate", "10")
    program.read_until(receiver, ["receiving it"])
    transfer_killed._wait_for_bytes(pair, least, sender)
    sender.send_signal(signal.SIGKILL)
    sender.communicate()
    program.read_until(receiver, ["the sender is gone"])


def _flip(path, at):
    text = bytearray(path.read_bytes())
    text[at] ^= 0x20
    times = path.stat()
    path.write_bytes(text)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _arrives_or_says_why(pair, source, damage):
    """Never a copy that is said to be verified and is another one; the second attempt succeeds at the latest."""
    done = pair.send("set", check=None)
    if damage == "nothing":
        assert json.loads(done.stdout)["kept_bytes"] > 0, done.stdout
    if done.returncode != 0:
        assert done.returncode == 1 and "send it again" in done.stderr, (damage, done.stderr)
        assert not (pair.into / "set").exists(), damage
        pair.send("set")
    transfer._same(source, pair.into / "set")
    assert transfer._left_over(pair) == [], damage
    return done.returncode


def foreign_bytes_in_a_part_are_never_verified(directory):
    """Size, time and journal are as the receiver left them: only the content tells."""
    source = pathlib.Path(directory) / "set"
    transfer._make(source / "a", 2 * MIB)
    transfer._make(source / "z", 16 * MIB)
    with transfer._Pair(directory) as pair:
        _interrupt(pair, 8 * MIB)
        _flip(pair.part("set") / "a", 1234567)
        assert _arrives_or_says_why(pair, source, "a byte of the part") == 1


def _damages(journal, other, draw):
    """By name, a change of the bytes of a journal; None: no file."""
    size = len(journal)
    yield "nothing", journal
    yield "missing", None
    yield "empty", b""
    yield "zeros", bytes(size)
    yield "of another copy", other
    yield "its head", bytes([journal[0] ^ 1]) + journal[1:]
    for place in sorted(draw.sample(range(16, size), 3)):
        yield f"byte {place}", journal[:place] + bytes([journal[place] ^ 1 << draw.randrange(8)]) + journal[place + 1:]
    for place in sorted(draw.sample(range(1, size), 2)):
        yield f"cut at {place}", journal[:place]
        yield f"zeros from {place} on", journal[:place] + bytes(size - place)
    yield "foreign behind its end", journal + draw.randbytes(PAGE)
    yield "its records twice", journal + journal[16:]


def a_damaged_journal_leads_to_copying_again_or_to_words(directory):
    source = pathlib.Path(directory) / "set"
    transfer._make(source / "a", 2 * MIB)
    transfer._make(source / "b" / "c", MIB + 5)
    transfer._make(source / "b" / "small", 5)
    transfer._make(source / "z", 12 * MIB)
    draw = random.Random(SEED)
    with transfer._Pair(directory) as pair:
        _interrupt(pair, 7 * MIB)
        journal = pair.journal("set").read_bytes()
        kept = pathlib.Path(directory) / "kept"
        shutil.copytree(pair.into, kept)
        # The journal of a copy of another set, of the same names and sizes.
        other = _journal_of_another(pair, source)
        outcomes = []
        for damage, text in _damages(journal, other, draw):
            transfer_killed._clear(pair)
            shutil.copytree(kept, pair.into, dirs_exist_ok=True)
            if text is None:
                pair.journal("set").unlink()
            else:
                pair.journal("set").write_bytes(text)
            outcomes.append(f"{damage}: {_arrives_or_says_why(pair, source, damage)}")
        program.say(f"# {'; '.join(outcomes)}")


def _journal_of_another(pair, source):
    transfer_killed._clear(pair)
    pair.stop()
    other = source.with_name("other")
    for path in sorted(source.rglob("*")):
        if path.is_file():
            transfer._make(other / path.relative_to(source), path.stat().st_size, seed=2)
    os.rename(source, source.with_name("first"))
    os.rename(other, source)
    _interrupt(pair, 9 * MIB)
    text = pair.journal("set").read_bytes()
    os.rename(source, other)
    os.rename(source.with_name("first"), source)
    return text


def an_earlier_copy_may_have_had_other_kinds(directory):
    """A directory where there was a file or a link, and the other way round; nothing is written through the link."""
    source = pathlib.Path(directory) / "set"
    transfer._make(source / "a", 5)
    transfer._make(source / "b" / "c", MIB)
    transfer._make(source / "b" / "d" / "e", 5)
    (source / "l").symlink_to("b")
    transfer._make(source / "z", 24 * MIB)
    with transfer._Pair(directory) as pair:
        _interrupt(pair, 8 * MIB)
        assert (pair.part("set") / "l").is_symlink()
        (source / "a").unlink()
        transfer._make(source / "a" / "now", 7)
        shutil.rmtree(source / "b")
        transfer._make(source / "b", 9)
        (source / "l").unlink()
        transfer._make(source / "l" / "c", 2 * MIB, seed=3)
        pair.send("set")
        transfer._same(source, pair.into / "set")


if __name__ == "__main__":
    program.say(f"# SEED={SEED}")
    sys.exit(program.main(sys.modules[__name__], 2))
