"""`holdfast bench verbs`, `failover`, `broker`, `kv` and `smr`: what they measure is there and makes sense. No figure is judged.

It needs a quiet machine, as every measurement does: `make bench` runs it."""
import itertools
import json
import os
import pathlib
import re
import signal
import sys
import time

import program
from bench_draw import draw

MODES = ["none", "resend", "varuna", "varuna-psn", "varuna-log"]


def page_of(directory, kind, report, *more):
    pathlib.Path(directory, "report.json").write_text(json.dumps(report))
    draw(directory, kind, "report.json", "page.html", *more)
    return pathlib.Path(directory, "page.html").read_text()


def verbs_measures_every_point_of_a_figure_in_every_mode(directory):
    done = program.run(directory, "bench", "verbs", "--device", "shm", "--figure", "9", "--rounds", "2", "--seconds", "0",
                       "--json", "--out", "verbs.json", check=0)
    report = json.loads(done.stdout)
    assert report == json.loads(pathlib.Path(directory, "verbs.json").read_text())
    rows = report["points"]
    for mode in MODES:
        of_mode = [row for row in rows if row["mode"] == mode]
        assert sorted((row["operation"], row["clients"]) for row in of_mode) == sorted(
            (operation, clients) for operation in ("WRITE", "CAS") for clients in (1, 2, 4, 8, 16)), of_mode
        assert all(row["median_ns"] > 0 and row["p99_ns"] >= row["median_ns"] and row["ops_per_s"] > 0
                   for row in of_mode), of_mode
        for row in of_mode if mode != "none" else []:
            assert row["rounds"] == 2 and row["latency_ratio"] > 0 and row["cpu_ratio"] > 0, row
            assert (row["latency_ratio_low"] or 0) <= row["latency_ratio"] <= (row["latency_ratio_high"] or 1e9), row
            assert abs(row["latency_ratio"] * row["bandwidth_ratio"] - 1) < 1e-6, row
    page = page_of(directory, "verbs", report)
    for bar in report["bars"]:
        assert bar["device"] == "shm" and bar["verdict"] in ("met", "missed", "undecided"), bar
        assert bar["points_met"] + bar["points_missed"] + bar["points_undecided"] == 10, bar
        assert bar["bar"] in page, bar
    assert [bar["mode"] for bar in report["bars"]] == ["varuna-psn", "varuna-log", "varuna"], report["bars"]
    assert page.count("<svg viewBox=\"0 0 960") == 4 and page.rstrip().endswith("</html>"), page[:2000]


def a_machine_that_stands_still_for_longer_than_a_lease_does_not_end_the_measurement(directory):
    """By default the lease is 5 s, and a vqp without failover ends with its qp."""
    with program.start(directory, "bench", "verbs", "--device", "shm", "--figure", "9", "--rounds", "20", "--seconds", "0") as bench:
        program.read_until(bench, ["round 1:"])
        while not program.children(bench.pid):
            time.sleep(0.01)
        time.sleep(0.5)  # its nodes are connected
        stopped = [bench.pid, *program.children(bench.pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(6)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        program.read_until(bench, ["round 4:"])
        bench.terminate()


def the_page_has_every_chart_of_the_papers_figures_and_says_how_many_clients_there_were(directory):
    done = program.run(directory, "bench", "verbs", "--device", "shm", "--mode", "varuna", "--rounds", "1", "--seconds", "0",
                       "--json", check=0)
    page = page_of(directory, "verbs", json.loads(done.stdout))
    charts = dict(re.findall(r'<svg viewBox="0 0 960[^>]* aria-label="([^"]*)">(.*?)</svg>', page, re.DOTALL))
    of_figure = {8: ("WRITE one at a time", "WRITE in batches of 64"), 9: ("WRITE of 4 KB one at a time", "CAS one at a time"),
                 10: ("WRITE of 4 KB in batches", "CAS and three READs in batches")}
    for figure, operation in [(figure, operation) for figure in of_figure for operation in of_figure[figure]]:
        titles = [title for title in charts if title.startswith(operation + ",") and title.endswith("(figure %d)" % figure)]
        assert sorted(title.partition(": ")[2].split(" ")[0] for title in titles) in (
            ["bandwidth", "latency"], ["latency", "operations"]), (operation, titles)
    assert len(charts) == 12, sorted(charts)
    few = {row["bytes"] for row in json.loads(done.stdout)["points"] if row["figure"] == 8 and row["clients"] != 16}
    assert few == {1 << 18, 1 << 20}, few
    for title, drawing in charts.items():
        by_fewer = "WRITE in batches of 64" in title
        assert ("256 KB (4)<" in drawing and "1 MB (4)<" in drawing) == by_fewer, title
        assert ("16 clients (4 from 256 KB on)" in title) == by_fewer, title


def a_broker_is_measured_on_every_way(directory):
    done = program.run(directory, "bench", "broker", "--rounds", "1", "--json", "--out", "broker.json", check=0)
    report = json.loads(done.stdout)
    assert report == json.loads(pathlib.Path(directory, "broker.json").read_text())
    assert [row["way"] for row in report] == ["shm", "soft", "tcp"], report
    for row in report:
        assert row["produce_us"] > 0 and row["fetch_us"] > 0 and row["end_to_end_us"] > 0, row
        if row["way"] != "tcp":
            assert row["empty_per_s"] > 0 and row["bandwidth_32k_mb_s"] > 0, row
    assert report[0]["stopped_per_s"] > 0 and report[0]["stopped_records"] > 0, report[0]


def records_around_rolls_are_told_from_others(directory):
    done = program.run(directory, "bench", "broker", "rolls", "--device", "shm", "--rounds", "1", "--json", check=0)
    row, = json.loads(done.stdout)
    assert row["rolls"] > 0, row
    for where in ("around", "between"):
        assert 0 < row[where + "_rolls_p999_us"] <= row[where + "_rolls_max_us"], row
    assert "produce_us" not in row, row


def a_store_is_killed_and_heals_and_the_page_has_the_papers_figures(directory):
    others = [{"name": name, "kind": "recovery", "sync_ms": ms, "exec_ms": 2 * ms} for name, ms in (("ours", 1.5), ("theirs", 40.0))]
    pathlib.Path(directory, "others.json").write_text(json.dumps({"medians": others}))
    done = program.run(directory, "bench", "kv", "ycsb", "kill", "recovery", "--rounds", "1", "--missed", "500", "--json",
                       check=0)
    report = json.loads(done.stdout)
    assert [row["workload"] for row in report["ycsb"]] == ["A", "B", "C", "D", "E", "F"], report
    assert all(row["rate"] > 0 for row in report["ycsb"]), report
    assert [row["victim"] for row in report["kill"]] == ["other", "decides"], report
    assert all(row["median_ms"] > 50 for row in report["kill"]), report
    row, = report["recovery"]
    assert (row["recovery"], row["missed"], row["nodes"]) == ("heal", 500, 3) and row["records"] >= 500, row
    steps = sum(row[step] for step in ("start_to_ack_ms", "catch_up_to_resp_ms", "apply_to_end_ms"))
    assert row["exec_ms"] > row["total_ms"] > 0 and abs(steps - row["total_ms"]) < 1e-3, row
    page = page_of(directory, "kv", report, "--with", "others.json")
    assert "figure 6" in page and page.count("figure 9") >= 2 and page.rstrip().endswith("</html>"), page[:2000]


def none_is_compared_with_itself_when_it_is_asked_for(directory):
    done = program.run(directory, "bench", "verbs", "--device", "soft", "--figure", "9", "--mode", "none", "--rounds", "1",
                       "--seconds", "0", "--handicap", "100", "--json", check=0)
    report = json.loads(done.stdout)
    assert report["bars"] == [] and len(report["points"]) == 20, report
    assert all("latency_ratio" not in row for row in report["points"][:10]), report
    assert all(row["mode"] == "none" and row["latency_ratio"] > 0 for row in report["points"][10:]), report


def a_cut_sends_again_what_was_in_flight_and_varuna_no_more_than_had_not_executed(directory):
    done = program.run(directory, "bench", "failover", "--device", "shm", "--cuts", "2", "--clients", "4", "--no-scale",
                       "--json", check=0)
    rows = json.loads(done.stdout)["failovers"]
    assert len(rows) == 45, len(rows)
    for row in rows:
        assert len(row["mb_per_s"]) == 120 and min(row["mb_per_s"]) >= 0, row
    for batch, cut in itertools.product(("WRITE 4 KB", "WRITE 64 KB", "CAS"), ("both ways", "requests", "acknowledgements")):
        modes = [row["mode"] for row in rows if row["batch"] == batch and row["cut"] == cut]
        assert sorted(modes) == ["none", "resend", "resend-cache", "varuna", "varuna-psn"], (batch, cut, modes)
    rows = [row for row in rows if row["mode"] != "none"]
    for row in rows:
        assert row["in_flight_bytes"] > 0 and 0 <= row["post_failure_share"] <= 1, row
        assert row["detection_us"] > 0 and row["first_us"] > 0 and row["recovery_us"] > 0, row
        assert ("recovery_to_resend" in row) == (row["mode"] != "resend"), row
        if row["mode"].startswith("varuna"):
            assert row["within_a_packet"], row
            assert ("recovery_verdict" in row) <= (row["cut"] == "acknowledgements"), row
    assert sum(row["executed_twice_bytes"] for row in rows
               if row["mode"] == "resend" and row["cut"] == "acknowledgements") > 0, rows
    page = page_of(directory, "failover", json.loads(done.stdout))
    resent = re.findall(r'<svg [^>]*"shm, ([^"]*) in batches: sent again[^>]* \(figure 11\)">(.*?)</svg>', page, re.DOTALL)
    assert [shape for shape, _ in resent] == ["WRITE 4 KB", "WRITE 64 KB", "CAS"], resent
    # A bar for each of four modes and three cuts, and across each what had not been executed.
    for _, drawing in resent:
        assert drawing.count('class="line m') == 12 and drawing.count('<path class="cut"') == 12, drawing
    throughput = re.findall(r"<svg [^>]*throughput around the cut \(figure 12\).*?</p>", page, re.DOTALL)
    assert len(throughput) == 9, len(throughput)
    for mode in ("none", "resend", "resend-cache", "varuna", "varuna-psn"):
        assert all("</svg>%s<" % mode in chart for chart in throughput), (mode, throughput)


def without_a_policy_nothing_completes_until_the_program_has_new_vqps(directory):
    done = program.run(directory, "bench", "failover", "--device", "shm", "--cuts", "3", "--clients", "4", "--no-scale",
                       "--mode", "none", "--only", "WRITE 4 KB", "--json", check=0)
    rows = [row for row in json.loads(done.stdout)["failovers"] if row["mode"] == "none"]
    assert [row["cut"] for row in rows] == ["both ways", "requests", "acknowledgements"], rows
    for row in rows:
        assert "sent_again_bytes" not in row and "recovery_us" not in row, row
        assert ("first_us" in row) == (row["resumed_cuts"] > 0), row
        # No more than what was under way completes while every vqp that there is has its wrs on the rail that is cut.
        if row["resumed_cuts"] == 0:
            assert sum(row["mb_per_s"][20:]) * row["step_us"] <= 4 * row["vqps"] * 64 * 4096, row
    assert sum(sum(row["mb_per_s"][:20]) for row in rows) > 0, rows
    assert rows[0]["resumed_cuts"] == 3 and rows[0]["first_us"] > 0, rows[0]


def many_vqps_are_cut_again_and_again_and_the_first_completion_is_judged(directory):
    done = program.run(directory, "bench", "failover", "--device", "shm", "--mode", "varuna", "--only-scale", "--vqps", "64",
                       "--json", check=0)
    none, varuna = json.loads(done.stdout)["many_vqps"]
    assert none["mode"] == "none" and none["cuts"] == 0 and "first_us" not in none, none
    assert varuna["mode"] == "varuna" and varuna["vqps"] == 64 and varuna["cuts"] > 10, varuna
    assert 0 < varuna["first_us_low"] <= varuna["first_us"] <= varuna["first_p99_us"], varuna
    assert varuna["first_us"] <= varuna["all_us"] and varuna["first_most_us"] == 100, varuna
    assert varuna["first_verdict"] in ("met", "missed", "undecided"), varuna
    assert "median at most 100 us: " + varuna["first_verdict"] in done.stderr, done.stderr


def transfer_measures_each_block_size_and_checks_its_bytes(directory):
    done = program.run(directory, "bench", "transfer", "sweep", "--quick", "--json", check=0)
    rows = json.loads(done.stdout)["sweep"]
    assert {(row["device"], row["op"]) for row in rows} == {
        (device, op) for device in ("shm", "soft", "tcp") for op in ("read", "write", "mix")}
    assert {row["block"] for row in rows} >= {4096, 65536, 1 << 20, 16 << 20}
    assert all(row["consistent"] and row["mb_s"] > 0 and row["batches"] > 0 for row in rows), rows
    page = page_of(directory, "transfer", json.loads(done.stdout))
    assert "<svg" in page and page.rstrip().endswith("</html>")


def transfer_cuts_all_rails_during_a_copy(directory):
    """Whether the figures are met is for the machine of a benchmark; that nothing is lost is for any."""
    done = program.run(directory, "bench", "transfer", "cuts", "--gib", "0.2", "--rate", "60", "--cuts", "2", "--json")
    cuts = json.loads(done.stdout)["cuts"]
    assert cuts["cuts"] == 2 and cuts["hash_equal"], cuts
    assert cuts["over_tcp_median_ms"] >= 0 and cuts["over_rails_worst_ms"] >= 0, cuts


def transfer_cuts_and_slows_one_of_two_rails(directory):
    """No figure is judged, but that no task fails."""
    done = program.run(directory, "bench", "transfer", "rails", "--rail-rate", "20", "--json")
    rails = json.loads(done.stdout)["rails"]
    assert {"two_to_one", "port_event_ms_to_95_percent", "port_event_restored_ms", "silent_ms_to_95_percent",
            "silent_restored_ms", "slow_rail_share", "slow_total_to_one", "slow_then_equal_ms"} <= set(rails), rails
    assert rails["failed_tasks"]["value"] == 0, rails


def kv_measures_beside_redis_and_after_a_kill(directory):
    """No figure is judged."""
    done = program.run(directory, "bench", "kv", "beside", "cost", "kill", "--rounds", "1", "--json", check=0)
    report = json.loads(done.stdout)
    assert [row["shape"] for row in report["cost"]] == ["SET, c=16 P=16", "SET one in five"], report
    assert all(row["rate"] > 0 and row["rate_ratio"] > 0 for row in report["cost"]), report
    assert [row["victim"] for row in report["kill"]] == ["other", "decides"], report
    assert all(row["median_ms"] > 0 for row in report["kill"]), report
    page = page_of(directory, "kv", report)
    assert page.rstrip().endswith("</html>") and "decides" in page, page
    if "skipped" in report["beside"][0]:
        raise program.Skip(report["beside"][0]["skipped"])
    assert [row["shape"] for row in report["beside"]] == ["SET, c=1", "GET, c=1", "SET, c=16 P=16"], report
    assert all(row["p50_us"] > 0 and row["rate_ratio"] > 0 for row in report["beside"]), report


def smr_measures_proposals_and_stopped_leaders(directory):
    """No figure is judged."""
    program.run(directory, "bench", "smr", "--rounds", "1", "--failovers", "1", "--cuts", "1", "--seconds", "1", "--entries", "1000",
                "--out", "smr.json", check=0)
    report = json.loads(pathlib.Path(directory, "smr.json").read_text())
    assert 0 < report["propose"][0]["median_ns"] <= report["propose"][0]["p99_ns"] and report["propose"][0]["jitter"] >= 1, report
    assert [row["batch"] for row in report["batches"]] == [1, 2, 4, 8, 16, 32, 64, 128], report
    assert all(row[f"per_s_{n}"] > 0 and row[f"entry_ns_{n}"] > 0 for row in report["batches"] for n in (1, 2, 4, 8)), report
    assert [row["leader"] for row in report["failover"]] == ["asleep", "stopped", "killed"], report
    assert all(sum(bucket["failovers"] for bucket in row["histogram"]) == row["failovers"] for row in report["failover"]), report
    assert [row["disturbed_by"] for row in report["steady"]] == ["undisturbed", "rails cut", "follower stopped", "follower killed"]
    page = page_of(directory, "smr", report)
    assert page.rstrip().endswith("</html>") and "in flight" in page and "asleep" in page, page


def members_of_a_log_come_and_go_and_nothing_is_lost(directory):
    """No figure is judged."""
    done = program.run(directory, "bench", "smr", "members", "--rounds", "1", "--state", "4", "--rate", "500", "--seconds", "1",
                       "--json", check=0)
    *spans, truth = json.loads(done.stdout)
    assert truth["undecided"] == truth["lost"] == truth["wrong"] == 0 and truth["alike"], truth
    assert truth["snapshots"] >= 5 and truth["proposals"] >= 1000, truth
    times = {row["during"]: row["times"] for row in spans}
    assert (times["adding"], times["removing"], times["changes"]) == (2, 2, 7), times


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
