#!/usr/bin/env python3
"""bench_page.py KIND FILE [--with FILE] --out PAGE - draws figures of holdfast-bench as a page that loads nothing from elsewhere.

KIND names the figures: verbs, failover, transfer, smr or kv (FILE is what `holdfast bench KIND --out FILE` wrote), or broker
(FILE is what bench_broker.py wrote). --with adds figures of other systems: what bench_smr.py or bench_kv.py wrote.
Exit status: 0 the page is written; 2 wrong input.
"""
import argparse
import html
import json
import math
import sys

STYLE = """
:root{--ground:#fcfcfa;--ink:#22242a;--soft:#6b6f7a;--line:#d9dade;--c1:#b3641c;--c3:#2563a8;--c4:#1d7a46;--c5:#c22f3d}
@media(prefers-color-scheme:dark){:root{--ground:#16181d;--ink:#e6e7ea;--soft:#9a9fab;--line:#34373f;--c1:#e8a15c;
--c3:#6aa9ec;--c4:#5cc98b;--c5:#f0717c}}
*{box-sizing:border-box}
body{margin:0 auto;padding:2rem 1.25rem;max-width:64rem;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui}
h1{font-size:1.6rem;margin:0 0 .25rem}h2{font-size:1.2rem;margin:2.5rem 0 .25rem}p{margin:.25rem 0 1rem;color:var(--soft)}
svg{width:100%;height:auto;display:block}svg text{font:12px system-ui;fill:var(--soft)}.bad{color:var(--c5)}
.grid{stroke:var(--line)}.cut{stroke:var(--c5);stroke-width:1.5}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line)}th{color:var(--soft);font-weight:500}
details{margin:1rem 0}summary{cursor:pointer;color:var(--soft)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.m0{stroke:var(--soft)}.m1{stroke:var(--c1)}.m2{stroke:#8a6bd1}
.m3{stroke:var(--c3)}.m4{stroke:var(--c4)}.m5{stroke:var(--c5)}
.key{display:inline-block;width:.8em;height:.8em;margin:0 .35em 0 1em;vertical-align:-1px}
"""
MODES = ["none", "resend", "resend-cache", "varuna", "varuna-psn", "varuna-log"]  # a colour each, the same in all charts
KB, MB = 1 << 10, 1 << 20
STEPS_BEFORE = 20  # of a series around a cut


# ---- a chart of lines, or of bars side by side ----

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 260, 72, 16, 16, 32
INNER, DEPTH = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
LABELS_MOST = 20


class Line:
    def __init__(self, name, values, color, levels=()):
        """A level is a mark across a bar."""
        self.name, self.values, self.color, self.levels = name, values, color, levels


def tick_of(most):
    """1, 2 or 5 times a power of ten, so that some four ticks cover the range."""
    power = 10 ** math.floor(math.log10(most / 4))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= most / 4)


def scale_of(lines, log):
    """Where a value is on the page, and the values of the grid's lines."""
    values = [value for line in lines for value in (*line.values, *line.levels) if value > 0]
    if log and values:
        least, most = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values) * 1.001))
        return (lambda value: TOP + DEPTH * (1 - (math.log10(value) - least) / (most - least)),
                [10.0 ** power for power in range(least, most + 1)])
    most = max(values, default=1 / 1.05) * 1.05
    return lambda value: TOP + DEPTH * (1 - value / most), [tick_of(most) * n for n in range(int(most / tick_of(most)) + 1)]


def svg_lines(lines, x_of, y_of, log):
    for line in lines:
        path, drawing = "", False
        for at, value in enumerate(line.values):
            drawn = value > 0 or not log
            if drawn:
                path += f"{'L' if drawing else 'M'}{x_of(at):.1f} {y_of(value):.1f}"
            drawing = drawn
        yield f'<path class="line m{line.color}" d="{path}"/>'


def svg_bars(lines, points, x_of, y_of):
    place = INNER / points * 0.7 / len(lines)
    for number, line in enumerate(lines):
        for at, value in enumerate(line.values):
            x = x_of(at) + place * (number + 0.5 - len(lines) / 2)
            yield (f'<path class="line m{line.color}" style="stroke-width:{place * 0.85:.1f}" '
                   f'd="M{x:.1f} {y_of(0):.1f}V{y_of(value):.1f}"/>')
            if line.levels:
                yield f'<path class="cut" d="M{x - place / 2:.1f} {y_of(line.levels[at]):.1f}H{x + place / 2:.1f}"/>'


def chart(title, unit, labels, lines, log=False, bars=False, marked=None):
    """`marked`: a vertical line at this point."""
    if not labels or not lines:
        return ""
    points, title = len(labels), html.escape(title)
    y_of, grid = scale_of(lines, log)

    def x_of(at):
        return LEFT + INNER * ((at + 0.5) / points if bars else at / (points - 1) if points > 1 else 0.5)

    out = [f'<h3>{title}</h3><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">']
    for value in grid:
        y = y_of(value)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    for at in range(0, points, points // LABELS_MOST + 1):
        at_edge = x_of(at) > WIDTH - RIGHT - 1
        out.append(f'<text x="{WIDTH - 2 if at_edge else x_of(at):.1f}" y="{HEIGHT - BOTTOM + 20}" '
                   f'text-anchor="{"end" if at_edge else "middle"}">{html.escape(labels[at])}</text>')
    if marked is not None:
        out.append(f'<line class="cut" x1="{x_of(marked):.1f}" x2="{x_of(marked):.1f}" y1="{TOP}" y2="{TOP + DEPTH}"/>')
    out += svg_bars(lines, points, x_of, y_of) if bars else svg_lines(lines, x_of, y_of, log)
    keys = "".join(f'<svg class="key" viewBox="0 0 10 10"><path class="line m{line.color}" d="M0 5H10"/></svg>'
                   f"{html.escape(line.name)}" for line in lines)
    return "\n".join(out) + f'<text x="4" y="12">{html.escape(unit)}</text></svg>\n<p>{keys}</p>\n'


# ---- rows of figures ----

def number(row, key):
    value = row.get(key)
    return value if isinstance(value, (int, float)) and value > 0 else 0


def label_of(value):
    return f"{value:g}" if isinstance(value, (int, float)) else str(value or "")


def rows_chart(title, unit, rows, label, *keys, kind=None, lines=False):
    """A point for each row of the kind that has one of the keys. A key is (name in the row, name in words)."""
    rows = [row for row in rows if kind in (None, row.get("kind")) and any(key in row for key, _ in keys)]
    return chart(title, unit, [label_of(row.get(label)) for row in rows],
                 [Line(words or title, [number(row, key) for row in rows], color) for color, (key, words) in enumerate(keys)],
                 log=lines, bars=not lines)


def rows_table(title, rows):
    def cell(key, value):
        if isinstance(value, bool):
            return f"{key} {'yes' if value else 'no'}"
        return f"{key} {value:.6g}" if isinstance(value, (int, float)) else f"{key} {value}"

    lines = ("".join(f"<td>{html.escape(cell(key, value))}</td>" for key, value in row.items()
                     if isinstance(value, (str, bool, int, float))) for row in rows)
    return f"<h2>{html.escape(title)}</h2>\n<table>\n" + "".join(f"<tr>{line}</tr>\n" for line in lines) + "</table>\n"


def table(columns, rows):
    """Columns have a line between them in the text."""
    head = "".join(f"<th>{column.strip()}</th>" for column in columns.split("|"))
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f"<table><tr>{head}</tr>\n{body}</table>\n"


def interval(row, name, form, factor=1, unit=""):
    """"MEDIAN (LOW to HIGH)"; nothing when the row has no such figure. An end that is null is infinite."""
    if name not in row:
        return ""
    low, high = (infinite if row[key] is None else row[key] * factor
                 for key, infinite in ((name + "_low", -math.inf), (name + "_high", math.inf)))
    return f"{row[name] * factor:{form}}{unit} ({low:{form}} to {high:{form}})"


def groups_of(rows, *keys):
    """Lists of neighbours that have the same values, in their order."""
    groups = []
    for row in rows:
        if not groups or any(groups[-1][0][key] != row[key] for key in keys):
            groups.append([])
        groups[-1].append(row)
    return groups


# ---- verbs: figures 8 to 10 of the Varuna paper ----

LATENCY, BANDWIDTH, OPERATIONS = ("median_ns", 1e3, "us"), ("mb_per_s", 1, "MB/s"), ("ops_per_s", 1e3, "1000/s")
VERBS_CHARTS = [
    (8, "WRITE", False, LATENCY, "WRITE one at a time, 16 clients: latency"),
    (8, "WRITE", False, BANDWIDTH, "WRITE one at a time, 16 clients: bandwidth"),
    (8, "WRITE", True, LATENCY, "WRITE in batches of 64, 16 clients (4 from 256 KB on): latency of a batch"),
    (8, "WRITE", True, BANDWIDTH, "WRITE in batches of 64, 16 clients (4 from 256 KB on): bandwidth"),
    (9, "WRITE", False, LATENCY, "WRITE of 4 KB one at a time, by clients: latency"),
    (9, "WRITE", False, BANDWIDTH, "WRITE of 4 KB one at a time, by clients: bandwidth"),
    (9, "CAS", False, LATENCY, "CAS one at a time, by clients: latency"),
    (9, "CAS", False, OPERATIONS, "CAS one at a time, by clients: operations"),
    (10, "WRITE", True, LATENCY, "WRITE of 4 KB in batches, by clients: latency of a batch"),
    (10, "WRITE", True, BANDWIDTH, "WRITE of 4 KB in batches, by clients: bandwidth"),
    (10, "CAS + 3 READ", True, LATENCY, "CAS and three READs in batches, by clients: latency of a batch"),
    (10, "CAS + 3 READ", True, OPERATIONS, "CAS and three READs in batches, by clients: operations"),
]


def size_of(count, units=("B", "KB", "MB")):
    step = 2 if count >= MB else 1 if count >= KB else 0
    return f"{count // KB ** step} {units[step]}"


def verbs_label(row):
    few = f" ({row['clients']})" if row["clients"] != 16 else ""
    return size_of(row["bytes"]) + few if row["figure"] == 8 else str(row["clients"])


def operation_of(row):
    return row["operation"] + (" x 64" if row["batch"] else "")


def verbs_charts(rows):
    for figure, operation, batch, (key, factor, unit), title in VERBS_CHARTS:
        chosen = [row for row in rows if (row["figure"], row["operation"], row["batch"]) == (figure, operation, batch)]
        points = list(dict.fromkeys((row["bytes"], row["clients"]) for row in chosen))
        lines = []
        for mode in dict.fromkeys(row["mode"] for row in chosen):
            values = {(row["bytes"], row["clients"]): row[key] / factor for row in chosen if row["mode"] == mode}
            lines.append(Line(mode, [values.get(point, 0) for point in points], MODES.index(mode)))
        labels = {(row["bytes"], row["clients"]): verbs_label(row) for row in chosen}
        yield chart(f"{title} (figure {figure})", unit, [labels[point] for point in points], lines, log=True)


def verbs_page(figures):
    points = figures["points"]
    yield ("<p>Clients are vqps of one process, each a closed loop to a server in another process. The modes take turns of "
           "some milliseconds; a ratio is the median of the rounds, and a round's that of such pairs beside the first mode; "
           "with the sign test's 95 % interval, of the rounds. Batches of 256 KB and 1 MB have 4 clients, not 16, or a "
           "gigabyte would be in flight; their points say so.</p>\n<h2>Bars</h2>\n")
    yield table("Bar | Verdict | Points met, missed, undecided | Most at | There", [
        (bar["bar"], bar["verdict"], f"{bar['points_met']}, {bar['points_missed']}, {bar['points_undecided']}",
         f"{operation_of(bar['worst'])} of {bar['worst']['bytes']} B, {bar['worst']['clients']} clients",
         interval(bar, "there", ".3f")) for bar in figures["bars"]])
    for rows in groups_of(points, "device"):
        yield f"<h2>{rows[0]['device']}</h2>\n"
        yield from verbs_charts(rows)
    yield "<details><summary>Every figure</summary>"
    yield table("Device | Mode | Operation | Bytes | Clients | Median, us | p99, us | MB/s | Time, ratio | ns an operation more | "
                "CPU time, ratio", [
                    (row["device"], row["mode"], operation_of(row), row["bytes"], row["clients"],
                     f"{row['median_ns'] / 1e3:.1f}", f"{row['p99_ns'] / 1e3:.1f}", f"{row['mb_per_s']:.0f}",
                     interval(row, "latency_ratio", ".3f"), interval(row, "cost_ns", "+.0f"),
                     f"{row['cpu_ratio']:.3f}" if "cpu_ratio" in row else "") for row in points])
    yield "</details>\n"


# ---- failover: figures 11 and 12 ----

def failover_row(row):
    start = (row["device"], row["mode"], row["batch"], row["cut"])
    first = f"{row['first_us']:.0f}" if "first_us" in row else ""
    if "sent_again_bytes" not in row:
        return (*start, f"wrs fail; new vqps come to another rail in {row['resumed_cuts']} of {row['cuts']} cuts", "", "", "",
                "", first, "", "", "", "")
    of_post = "recovery_post_failure_to_resend"
    return (*start, f"{row['post_failure_share'] * 100:.1f} %", f"{row['sent_again_bytes'] / KB:.1f}",
            f"{row['not_executed_bytes'] / KB:.1f}",
            f"{row['sent_again_to_resend'] * 100:.1f} %" if "sent_again_to_resend" in row else "",
            f"{row['detection_us']:.0f}", first, f"{row.get('recovery_post_failure_us', 0):.0f}", f"{row['recovery_us']:.0f}",
            interval(row, of_post if of_post in row else "recovery_to_resend", ".0f", 100, " %"),
            row.get("recovery_verdict", ""))


def failover_charts(rows):
    yield ("<p>A bar is what a policy sent again in a cut, all clients together; the red mark across it is what of that had not "
           "been executed, by the devices' own counters. Up to there it had to be sent.</p>\n")
    for group in groups_of(rows, "device", "batch"):
        cuts = list(dict.fromkeys(row["cut"] for row in group))
        recovering = [row for row in group if "sent_again_bytes" in row]
        lines = []
        for mode in dict.fromkeys(row["mode"] for row in recovering):
            by_cut = {row["cut"]: row for row in recovering if row["mode"] == mode}
            sent, needed = ([by_cut[cut][key] / KB if cut in by_cut else 0 for cut in cuts]
                            for key in ("sent_again_bytes", "not_executed_bytes"))
            lines.append(Line(mode, sent, MODES.index(mode), needed))
        yield chart(f"{group[0]['device']}, {group[0]['batch']} in batches: sent again, by what was cut (figure 11)", "KB", cuts,
                    lines, bars=True)
    for group in groups_of(rows, "device", "batch", "cut"):
        first = group[0]
        yield chart(f"{first['device']}, {first['batch']} in batches, cut of {first['cut']}: throughput around the cut (figure 12)",
                    "MB/s", [f"{(at - STEPS_BEFORE) * first['step_us'] / 1e3:.3g} ms" for at in range(len(first["mb_per_s"]))],
                    [Line(row["mode"], row["mb_per_s"], MODES.index(row["mode"])) for row in group], marked=STEPS_BEFORE)


def scale_differences(scales):
    """What a policy takes that another does not."""
    of = {(row["device"], row["vqps"], row["mode"]): row for row in scales}
    for device, vqps, mode in of:
        if mode != "none":
            continue
        for words, more, less in (("standby qps (varuna-psn)", "varuna-psn", "none"),
                                  ("completion logs, and what they need of the qps (varuna)", "varuna", "varuna-psn"),
                                  ("a second qp each (resend-cache)", "resend-cache", "none")):
            if (device, vqps, more) in of and (device, vqps, less) in of:
                beside = of[device, vqps, less]["memory_bytes"]
                extra = of[device, vqps, more]["memory_bytes"] - beside
                yield (f"<li>{device}, {vqps} vqps: {words} {extra / MB:+.1f} MB, {extra / beside * 100:+.1f} % of {less}, "
                       f"{extra / vqps:.0f} B a connection (two vqps).</li>\n")


def scale_rows(scales):
    none_of = {(row["device"], row["vqps"]): row["memory_bytes"] for row in scales if row["mode"] == "none"}
    for row in scales:
        none = none_of.get((row["device"], row["vqps"]), 0)
        yield (row["device"], row["mode"], row["vqps"],
               *(f"{row[key] / MB:.1f}" for key in ("nodes_bytes", "connected_bytes", "memory_bytes")),
               f"{(row['memory_bytes'] / none - 1) * 100 if none > 0 else 0:+.1f} %",
               *(f"{row[key]:.0f}" for key in ("request_log_bytes", "completion_log_bytes")), f"{row['connect_us'] / 1e3:.0f}",
               *(f"{row.get(key, 0):.0f}" for key in ("first_us", "first_p99_us", "all_us")))


def failover_page(figures):
    rows, scales = figures["failovers"], figures["many_vqps"]
    yield ("<p>Clients keep batches of 64 in flight on rail r0, which is cut at random moments. With the policy none wrs fail at "
           "the end of their qp's retries, and the program makes new vqps; where a cut is silent these come to the same rail "
           "again.</p>\n")
    if rows:
        yield ("<h2>Sent again, and how long it took (figure 11)</h2>\n<p>Detection is the same for every policy: timeouts, when "
               "a cut is silent. Recovery is counted from then on. In the paper, varuna sends 25.4 % of what resend does at 64 "
               "KB, and recovers 52.2 % (4 KB) and 64.5 % (64 KB) sooner.</p>\n")
        yield table("Device | Mode | Batch of 64 | Cut | Post-failure | Sent again, KB | Not executed, KB | Beside resend | "
                    "Detection, us | First, us | Recovery of post-failure, us | of all, us | Beside resend | at most 35 %",
                    map(failover_row, rows))
        yield from failover_charts(rows)
    if scales:
        yield ("<h2>Many vqps</h2>\n<p>Memory of both processes together (PSS), each mode in processes of its own: before there "
               "are vqps, with all connected, and when each has used every place of its queues.</p>\n")
        yield table("Device | Mode | vqps | Nodes, MB | Connected, MB | Used, MB | Over none | Request log, B a vqp | "
                    "Completion log, B a vqp | All up, ms | First completion, us | its p99 | All resumed, us",
                    scale_rows(scales))
        yield "<ul>\n" + "".join(scale_differences(scales)) + "</ul>\n"


# ---- transfer: throughput by block size, one submitter ----

def transfer_page(figures):
    for op in ("write", "read", "mix"):
        for batch in (16, 1):
            rows = [row for row in figures.get("sweep", []) if (row["op"], row["batch"], row["submitters"]) == (op, batch, 1)]
            blocks = list(dict.fromkeys(row["block"] for row in rows))
            lines = []
            for color, device in enumerate(("shm", "soft", "tcp")):
                values = {row["block"]: row["mb_s"] for row in rows if row["device"] == device}
                lines.append(Line(device, [values.get(block, 0) for block in blocks], color))
            yield chart(f"{op}, batches of {batch}, by block size", "MB/s",
                        [size_of(block, ("B", "KiB", "MiB")) for block in blocks], lines, log=True)


# ---- smr ----

def buckets_of(ways):
    """A row for each bucket in which some failover is, with a number for each way in which a leader stops."""
    rows = {}
    for way in ways:
        for bucket in way["histogram"]:
            row = rows.setdefault(bucket["to_us"], {"to": f"to {bucket['to_us'] / 1e3:g} ms"})
            row[way["leader"]] = bucket["failovers"]
    return [rows[to_us] for to_us in sorted(rows)]


def smr_page(figures):
    batches, failover, others = (figures.get(part, []) for part in ("batches", "failover", "others"))
    in_flight = ("1", "2", "4", "8 in flight")
    yield rows_chart("Requests of 64 B a second, by requests an entry and entries in flight", "1/s", batches, "batch",
                     *((f"per_s_{words[0]}", words) for words in in_flight), lines=True)
    yield rows_chart("From proposal to decision of an entry, by requests an entry and entries in flight: medians", "ns", batches,
                     "batch", *((f"entry_ns_{words[0]}", words) for words in in_flight), lines=True)
    yield rows_chart("Failovers by their length", "failovers", buckets_of(failover), "to",
                     *((way, way) for way in ("asleep", "stopped", "killed")))
    yield rows_chart("Without a leader, by how it stopped: median and p99", "us", failover, "leader", ("median_us", "median"),
                     ("p99_us", "p99"))
    yield rows_chart("The median's parts", "us", failover, "leader", ("seen_us", "last sign of life"),
                     ("detected_us", "detection"), ("granted_us", "grants"), ("leading_us", "catching up"))
    yield rows_chart("One request of 64 B after the other: medians", "us", others, "name", ("median_us", None), kind="propose")
    yield rows_chart("The same on disks", "us", others, "name", ("median_us", None), kind="durable")
    yield rows_chart("redis-benchmark, SET, one client", "us", others, "name", ("median_us", "median"), ("p99_us", "p99"),
                     kind="one client")
    yield rows_chart("SETs of 16 clients, pipelines of 16", "1/s", others, "name", ("requests_a_second", None), kind="16 by 16")
    yield rows_chart("From kill -9 of the leader to the next answered write", "s", others, "name", ("seconds", None),
                     kind="fail-over")
    for part, title in (("bars", "What was to be shown"), ("propose", "One proposal after the other"),
                        ("batches", "Entries of several requests"), ("failover", "Failovers"),
                        ("steady", "What does not hold a leader up"), ("durable", "Proposals on disks"),
                        ("others", "Other systems, medians of the rounds")):
        if part in figures:
            yield rows_table(title, figures[part])


# ---- kv: figures 6 to 9 of HEAL ----

def recovery_by_missed(rows):
    first = rows[0] if rows else {}
    rows = [row for row in rows if row.get("workload") == "missed"
            and all(row.get(key) == first.get(key) for key in ("store_records", "nodes"))]
    amounts = list(dict.fromkeys(row["missed"] for row in rows))
    lines = []
    for color, way in enumerate(("heal", "copy", "stop")):
        values = {row["missed"]: row["total_ms"] for row in rows if row["recovery"] == way}
        lines.append(Line(way, [values.get(amount, 0) for amount in amounts], color))
    return chart("Recovery by records missed (figure 6)", "ms", [str(amount) for amount in amounts], lines, log=True)


def kv_page(figures):
    recovery, others = figures.get("recovery", []), figures.get("others", [])
    yield recovery_by_missed(recovery)
    yield rows_chart("Throughput lost with a member that fails and returns, heal-ycsb (figure 7)", "%", figures.get("loss", []),
                     "recovery", ("lost_percent", None))
    yield rows_chart("Steps of a recovery that missed 100,000 records, by members (figure 8)", "ms",
                     [dict(row, members=f"{row['nodes']} members") for row in recovery
                      if (row["recovery"], row.get("workload"), row["missed"]) == ("heal", "missed", 100000)],
                     "members", ("start_to_ack_ms", "start to ACK"), ("catch_up_to_resp_ms", "catch-up to response"),
                     ("apply_to_end_ms", "apply to end"))
    for title, unit, kind, key in (
            ("Synchronisation after 100,000 updates of 100 B missed (figure 9)", "ms", "recovery", "sync_ms"),
            ("From exec to the first right answer, the same (figure 9)", "ms", "recovery", "exec_ms"),
            ("Throughput lost with a member that fails and returns (figure 9)", "%", "loss", "lost_percent"),
            ("From kill -9 of the leader to the next answered write", "ms", "fail-over", "ms"),
            ("One write at a time", "us", "set", "p50_us")):
        yield rows_chart(title, unit, others, "name", (key, None), kind=kind)
    for part in ("beside", "ycsb", "cost", "kill", "recovery", "loss", "others"):
        if part in figures:
            yield rows_table(part, figures[part])


# ---- broker: figures of KafkaDirect, and stock clients ----

def ours_and_theirs(key):
    return (f"holdfast_{key}", "Holdfast"), (f"kafka_{key}", "Kafka")


BROKER_CHARTS = [
    ("Produce, 100 B, one in flight (figure 10)", "us", "produce", ("p50_us", None)),
    ("Produce without batching (figure 11)", "MB/s", "bandwidth", ("b512_mb_s", "512 B"), ("b32768_mb_s", "32 KiB")),
    ("Produce with three replicas, acks=all, 100 B (figure 14)", "us", "three replicas", ("p50_us", None)),
    ("The same without batching (figure 15)", "MB/s", "three replicas", ("b512_mb_s", "512 B"), ("b32768_mb_s", "32 KiB")),
    ("Three replicas, 512 B, by the most bytes of a replication batch (figure 17)", "MB/s", "replication batch", ("mb_s", None)),
    ("A preloaded record of 100 B (figure 18)", "us", "consume", ("p50_us", None)),
    ("From producer to consumer, 100 B (figure 19)", "us", "end to end", ("p50_us", None)),
    ("Records of 32 KiB, one a fetch (figure 20)", "MB/s", "consume", ("mb_s", None)),
    ("Looks that find nothing (section 5.3)", "a second", "empty", ("per_s", None)),
    ("Mean delay of events, 400 a second and a burst of 1,000 every ten seconds (figure 21)", "us", "events",
     ("constant_us", "constant"), ("burst_us", "burst"), ("mean_us", "all")),
    ("Records of 512 B, 32 in flight, extents of 16 MiB, segments of 128 MiB: p99.9", "us", "rolls",
     ("around_p999_us", "around a roll"), ("between_p999_us", "others")),
    ("Stock clients, one record in flight", "us", "stock latency", *ours_and_theirs("p50_us")),
    ("Stock clients, throughput, 100 B", "MB/s", "stock throughput, 100 B", *ours_and_theirs("mb_s")),
    ("Stock clients, throughput, 1 KiB", "MB/s", "stock throughput, 1 KiB", *ours_and_theirs("mb_s")),
    ("Stock clients, throughput, 32 KiB", "MB/s", "stock throughput, 32 KiB", *ours_and_theirs("mb_s")),
    ("Stock clients, Fetches that find nothing", "a second", "stock empty", *ours_and_theirs("per_s")),
    ("Memory of a broker without segments", "MiB", "memory", *ours_and_theirs("mib")),
]


def broker_page(figures):
    for name, why in figures.get("skipped", {}).items():
        yield f'<p class="bad">Not measured: {html.escape(name)}: {html.escape(str(why))}</p>\n'
    yield rows_table("What was to be shown", figures.get("bars", []))
    for title, unit, kind, *keys in BROKER_CHARTS:
        yield rows_chart(title, unit, figures["medians"], "name", *keys, kind=kind)
    yield rows_table("Medians of the rounds", figures["medians"])


# ---- the command ----

# KIND: (title, page, what the file must have, who writes it, who writes the figures of --with)
PAGES = {
    "verbs": ("Virtual queue pairs while nothing fails", verbs_page, "points", "`holdfast bench verbs`", None),
    "failover": ("Virtual queue pairs when their rail is cut", failover_page, "failovers", "`holdfast bench failover`", None),
    "transfer": ("Transfers between two processes of one host", transfer_page, None, "`holdfast bench transfer`", None),
    "smr": ("A replicated log: proposals, failovers, and other systems", smr_page, None, "`holdfast bench smr`",
            "scripts/bench_smr.py"),
    "kv": ("The store: beside others, after a kill, and when a member returns", kv_page, None, "`holdfast bench kv`",
           "scripts/bench_kv.py"),
    "broker": ("The broker beside Kafka 4.1.1", broker_page, "medians", "scripts/bench_broker.py", None),
}


def figures_of(path, key, writer):
    """The object in the file, which must have the key."""
    try:
        with open(path, encoding="utf-8") as file:
            figures = json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(refuse(f"{path}: {error}"))
    if not isinstance(figures, dict) or (key is not None and key not in figures):
        sys.exit(refuse(f"{path} has no figures of {writer}"))
    return figures


def refuse(words):
    print(f"bench_page: {words}", file=sys.stderr)
    return 2


def main():
    parser = argparse.ArgumentParser(description="draws figures of holdfast-bench as a page")
    parser.add_argument("kind", choices=PAGES)
    parser.add_argument("file", help="figures as JSON")
    parser.add_argument("--with", dest="beside", help="figures of other systems")
    parser.add_argument("--out", required=True, help="the page")
    options = parser.parse_args()
    title, page, key, writer, others = PAGES[options.kind]
    figures = figures_of(options.file, key, writer)
    if options.beside is not None and others is None:
        return refuse(f"there are no figures of other systems for {options.kind}")
    if options.beside is not None:
        figures["others"] = figures_of(options.beside, "medians", others)["medians"]
    text = (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width,initial-scale=1">'
            f'<meta name="color-scheme" content="light dark"><title>{title}</title><style>{STYLE}</style></head><body>\n'
            f"<h1>{title}</h1>\n" + "".join(page(figures)) + "</body></html>\n")
    try:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return refuse(f"{options.out}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
