"""The words of `holdfast bench`, and its pages of figures that other programs measured. Nothing is measured."""
import json
import pathlib
import sys

import program


def figures_beside_kafka_become_a_page(directory):
    figures = {"medians": [{"kind": "produce", "name": "Holdfast shm", "p50_us": 2.5},
                           {"kind": "stock latency", "name": "raw 1 KiB", "holdfast_p50_us": 11.0, "kafka_p50_us": 50.5}],
               "bars": [{"line": 3, "what": "produce < Java's", "ratio": 36.5, "": "met"}], "skipped": {"events": "no Java"}}
    pathlib.Path(directory, "kafka.json").write_text(json.dumps(figures))
    program.run(directory, "bench", "broker", "--with", "kafka.json", "--html", "kafka.html")
    page = pathlib.Path(directory, "kafka.html").read_text()
    assert "figure 10" in page and "figure 14" not in page and page.rstrip().endswith("</html>"), page[:2000]
    assert "produce &lt; Java's" in page and "36.5" in page and "Not measured: events: no Java" in page, page
    for words in (["--html", "kafka.html"], ["--with", "kafka.html", "--html", "kafka.html"]):
        done = program.run(directory, "bench", "broker", *words, check=2)
        assert "scripts/bench_broker.py" in done.stderr, done.stderr


def wrong_words_are_refused_with_the_right_ones(directory):
    for words, complaint in ((["verbs", "--device", "verbs"], "shm and soft"),
                             (["verbs", "--mode", "magic"], "no mode called 'magic'"),
                             (["failover", "--cuts", "0"], "from 1 to 99"),
                             (["failover", "--mode", "varuna-log"], "may be unknown after a cut"),
                             (["verbs", "--handicap", "-1"], "per cent"),
                             (["failover", "--only", "FAA"], "none has this: 'FAA'"),
                             (["paint"], "no set of figures called 'paint'"),
                             (["failover", "--cuts"], "incomplete argument '--cuts'")):
        done = program.run(directory, "bench", *words, check=2)
        assert complaint in done.stderr, done.stderr


def transfer_says_which_peer_cannot_be_had(directory):
    done = program.run(directory, "bench", "transfer", "beside", "--only", "mooncake", "--rounds", "1", "--json",
                       "--mooncake", "/nonexistent", check=0)
    assert "cannot be run" in json.loads(done.stdout)["beside"][0]["skipped"]


def smr_refuses_figures_that_are_none(directory):
    pathlib.Path(directory, "not.json").write_text("{}")
    done = program.run(directory, "bench", "smr", "--with", "not.json", check=2)
    assert "not.json has no figures of scripts/bench_smr.py" in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
