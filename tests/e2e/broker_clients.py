"""`holdfast produce` and `holdfast consume` with kcat, a stock client, at the other end: broker_clients.py HOLDFAST."""
import pathlib
import signal
import socket
import subprocess
import sys
import time

import broker
import program

CODECS = ("gzip", "snappy", "lz4", "zstd")
WORDS = "".join(f"{n} {'the same words again ' * (n % 9)}\n" for n in range(3000))
LIMIT_S = 60


def _produce(to, topic, text, *more):
    done = subprocess.run([program.HOLDFAST, "produce", "-b", to.address, "-t", topic, *more], input=text, text=True,
                          capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr


def _consume(directory, of, *more):
    return program.run(directory, "consume", "-b", of.address, *more, check=0).stdout


def _log_bytes(directory, topic):
    return sum(path.stat().st_size for path in pathlib.Path(directory, "logs", f"{topic}-0").glob("*.log"))


def each_codec_is_read_by_the_other(directory):
    with broker._Broker(directory) as of:
        for codec in CODECS:
            broker._kcat(of, "-P", "-t", f"kcat-{codec}", "-z", codec, text=WORDS)
            assert _consume(directory, of, "-t", f"kcat-{codec}", "-e") == WORDS, codec
            _produce(of, f"ours-{codec}", WORDS, "-z", codec)
            assert broker._read(of, f"ours-{codec}") == WORDS, codec
            assert _consume(directory, of, "-t", f"ours-{codec}", "-e", "-o", "2999") == WORDS.splitlines(True)[-1], codec
        _produce(of, "plain", WORDS)
        assert of.stop()[0] == 0
        for codec in CODECS:
            assert _log_bytes(directory, f"ours-{codec}") < _log_bytes(directory, "plain") / 2, codec


def a_key_has_the_partition_that_java_gives_it(directory):
    text = "".join(f"key-{n}:{n}\n" for n in range(500))
    with broker._Broker(directory, num_partitions=7) as of:
        broker._kcat(of, "-P", "-t", "stock", "-K", ":", "-X", "partitioner=murmur2_random", text=text)
        _produce(of, "ours", text, "-K", ":")
        of_key = [set(broker._kcat(of, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%p %k\n").splitlines())
                  for topic in ("stock", "ours")]
        assert of_key[0] == of_key[1] and len({line.split()[0] for line in of_key[0]}) == 7
        assert sorted(_consume(directory, of, "-t", "stock", "-K", ":", "-e").splitlines()) == sorted(text.splitlines())
        assert _consume(directory, of, "-t", "ours", "-p", "3", "-e").split() == \
            broker._kcat(of, "-C", "-t", "stock", "-p", "3", "-o", "beginning", "-e", "-q").split()


def a_group_goes_on_where_another_client_was(directory):
    def ours(of):
        return _consume(directory, of, "-G", "readers", "-e", "numbers").split()

    def stock(of):
        return broker._kcat(of, "-G", "readers", "-X", "auto.offset.reset=earliest", "-e", "-q", "numbers").split()

    with broker._Broker(directory, num_partitions=3, group_initial_rebalance_delay_ms=100) as of:
        for round, reads in enumerate((ours, stock, ours, ours)):
            made = [f"{round}-{n}" for n in range(1000)]
            _produce(of, "numbers", "".join(f"{line}\n" for line in made))
            assert sorted(reads(of)) == sorted(made), round


def members_come_and_go_and_nothing_is_missed(directory):
    with broker._Broker(directory, num_partitions=4, group_initial_rebalance_delay_ms=100) as of:
        commands = [[program.HOLDFAST, "consume", "-b", of.address, "-G", "readers", "numbers"]] * 2
        commands.append(["kcat", "-b", of.address, "-G", "readers", "-X", "auto.offset.reset=earliest", "-q", "-u", "numbers"])
        members, made = [], 0

        def more():
            nonlocal made
            _produce(of, "numbers", "".join(f"{n}\n" for n in range(made, made + 1000)))
            made += 1000

        def read():
            return [int(line) for i in range(len(members)) for line in pathlib.Path(directory, f"{i}").read_text().split()]

        def all_is_read():
            end = time.monotonic() + LIMIT_S
            while len(read()) < made:
                assert time.monotonic() < end, f"{len(read())} of {made} are read"
                time.sleep(0.02)
            assert sorted(read()) == list(range(made))

        try:
            for i, command in enumerate(commands):
                more()
                with open(pathlib.Path(directory, f"{i}"), "w") as out:
                    members.append(subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True))
                all_is_read()
            for member in members[:2]:
                member.send_signal(signal.SIGTERM)
                _, err = member.communicate(timeout=LIMIT_S)
                assert member.returncode == 0, err
                more()
                all_is_read()
        finally:
            for member in members:
                member.kill()
                member.wait()


def commands_say_that_no_broker_answers(directory):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        for command in ("produce", "consume"):
            waiting = subprocess.Popen([program.HOLDFAST, command, "-b", address, "-t", "a"], cwd=directory, text=True,
                                       stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                waiting.stdin.write("a line\n")
                waiting.stdin.close()
                line = waiting.stderr.readline()
                assert f"no broker of {address} answers for the topic a yet" in line, line
            finally:
                waiting.kill()
                waiting.wait()


def options_that_make_no_sense_are_refused(directory):
    for arguments, words in ((["produce", "-b", "127.0.0.1:9", "-t", "a", "-z", "rar"], "-z"),
                             (["consume", "-b", "127.0.0.1:9", "-t", "a", "-t", "b"], "--group"),
                             (["consume", "-b", "127.0.0.1:9", "-G", "g", "-p", "1", "a"], "--partition"),
                             (["consume", "-b", "127.0.0.1:9", "-G", "g", "-o", "7", "a"], "--group"),
                             (["consume", "-b", "127.0.0.1:9", "-t", "a", "-K", "ab"], "-K")):
        done = program.run(directory, *arguments)
        assert done.returncode == 2 and words in done.stderr, (arguments, done.stderr)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
