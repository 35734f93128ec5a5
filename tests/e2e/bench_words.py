"""The words of `holdfast bench`, and pages of figures. Nothing is measured."""
import json
import pathlib
import sys

import program
from bench_draw import draw


def figures_beside_kafka_become_a_page(directory):
    figures = {"medians": [{"kind": "produce", "name": "Holdfast shm", "p50_us": 2.5},
                           {"kind": "stock latency", "name": "raw 1 KiB", "holdfast_p50_us": 11.0, "kafka_p50_us": 50.5}],
               "bars": [{"line": 3, "what": "produce < Java's", "ratio": 36.5, "": "met"}], "skipped": {"events": "no Java"}}
    pathlib.Path(directory, "kafka.json").write_text(json.dumps(figures))
    draw(directory, "broker", "kafka.json", "kafka.html")
    page = pathlib.Path(directory, "kafka.html").read_text()
    assert "figure 10" in page and "figure 14" not in page and page.rstrip().endswith("</html>"), page[:2000]
    assert "produce &lt; Java&#x27;s" in page and "36.5" in page and "Not measured: events: no Java" in page, page
    done = draw(directory, "broker", "kafka.html", "other.html", check=2)
    assert "kafka.html" in done.stderr and not pathlib.Path(directory, "other.html").exists(), done.stderr


def charts_have_a_mark_for_each_figure(directory):
    """Two modes at two points on a logarithmic scale, a bar with the level that it had to reach, and the moment of a cut."""
    points = [{"figure": 9, "device": "shm", "mode": mode, "operation": "CAS", "batch": False, "bytes": 8, "clients": clients,
               "median_ns": median, "p99_ns": 9e4, "mb_per_s": 1.0, "ops_per_s": 1e9 / median}
              for mode, median in (("none", 1e3), ("varuna", 1e5)) for clients in (1, 2)]
    pathlib.Path(directory, "verbs.json").write_text(json.dumps({"points": points, "bars": []}))
    draw(directory, "verbs", "verbs.json", "verbs.html")
    page = pathlib.Path(directory, "verbs.html").read_text()
    assert page.count('role="img"') == 2 and "CAS one at a time, by clients: latency (figure 9)" in page, page
    assert 'class="line m0" d="M72.0 228.0L944.0 228.0"' in page and 'class="line m3" d="M72.0 86.7L944.0 86.7"' in page, page
    cut = {"device": "shm", "mode": "varuna", "batch": "CAS", "cut": "requests", "cuts": 1, "step_us": 1000,
           "mb_per_s": [1.0] * 120, "post_failure_share": 0.5, "sent_again_bytes": 2048, "not_executed_bytes": 1024,
           "detection_us": 1, "first_us": 2, "recovery_us": 3}
    failed = dict(mode="none", resumed_cuts=1, **{key: cut[key] for key in ("device", "batch", "cut", "cuts", "step_us", "mb_per_s")})
    pathlib.Path(directory, "failover.json").write_text(json.dumps({"failovers": [failed, cut], "many_vqps": []}))
    draw(directory, "failover", "failover.json", "failover.html")
    page = pathlib.Path(directory, "failover.html").read_text()
    assert page.count('class="cut"') == 2 and "2.0" in page and "in 1 of 1 cuts" in page and "-20 ms" in page, page


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


def figures_of_other_systems_that_are_none_are_refused(directory):
    pathlib.Path(directory, "not.json").write_text("{}")
    for kind in ("smr", "kv"):
        done = draw(directory, kind, "not.json", "page.html", "--with", "not.json", check=2)
        assert f"not.json has no figures of scripts/bench_{kind}.py" in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
