#!/usr/bin/env python3
"""tidy.py [--root DIR] - checks the rules of CONTRIBUTING.md that a program can check; each message names the substitute.

    PATH:LINE: RULE: what is wrong; what to do instead

Left to the compiler (-Werror): VLAs, switches over enums that miss a case (-Wswitch-enum warns in spite of a
default), shadowing, missing prototypes. Every rule here has a test that a bad snippet is refused: tests/tidy.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

# ---- the house: lowest layer first; each may include those before it ----

LAYERS = ["base", "env", "net", "dev", "rail", "node", "vqp", "mesh", "transfer", "smr", "kv", "broker", "proxy", "cli", "preload", "bench"]
BESIDE = {("kv", "broker"), ("broker", "kv"), ("smr", "transfer"), ("proxy", "kv"), ("proxy", "broker")}  # in LAYERS' order, but strangers to each other
PUBLIC_LAYER = {
    "error.h": "base", "metrics.h": "base", "env.h": "env", "config.h": "env", "loop.h": "env", "work.h": "env",
    "dev.h": "dev", "dev_dc.h": "dev", "dev_evidence.h": "dev", "dev_lease.h": "dev", "dev_ud.h": "dev",
    "dev_ops.h": "dev", "fabric.h": "dev",
    "nics.h": "dev", "node.h": "node", "channel.h": "node", "vqp.h": "vqp", "grant.h": "vqp",
    "transfer.h": "transfer", "transfer_front.h": "transfer", "smr.h": "smr", "smr_client.h": "smr", "smr_members.h": "smr", "kv.h": "kv",
    "producer.h": "broker", "consumer.h": "broker",
}
# A backend's headers stay in its folder; who else may see one, and why.
BACKENDS = {
    "dev/shm": ["tests/"],
    "dev/soft": ["sim/", "tests/", "fuzz/"],  # the simulator brings its own bus for the soft NIC
    "dev/verbs": ["tests/"],
    "env/linux": ["tests/"],
}

TREES = ("include", "src", "bench", "sim", "tests", "fuzz", "examples")
C_LINES, H_LINES, FUNCTION_LINES, COLUMNS, TAB = 1000, 250, 70, 120, 8

# ---- bans: (rule, where, where not, words, substitute); `where` are path prefixes ----

# The only product files that call the operating system for these: env, and the program's own child processes and
# scratch directory.
OS_FILES = ("src/env/", "src/cli/process.c", "src/cli/scratch.c", "bench/process.c")
BANS = [
    ("clock", ("src/", "bench/", "sim/"), OS_FILES + ("sim/main.c",),
     "time gettimeofday clock clock_gettime timespec_get timer_create timerfd_create", "hf_env_now_ns()"),
    ("sleep", ("src/", "bench/", "sim/", "tests/", "fuzz/"), OS_FILES,
     "sleep usleep nanosleep clock_nanosleep alarm", "a timer of the loop, or the condition itself"),
    ("entropy", ("src/", "bench/", "sim/", "tests/", "fuzz/"), OS_FILES,
     "rand srand random srandom drand48 lrand48 getrandom getentropy arc4random rand_r",
     "hf_env_entropy(), or a printed seed in tests"),
    ("socket", ("src/", "bench/", "sim/"), OS_FILES,
     "socket socketpair bind listen accept4 recvmsg recvmmsg sendmsg sendmmsg getaddrinfo epoll_create1 epoll_wait "
     "eventfd ppoll", "hf_dgram_*, hf_stream_*, hf_notifier_* and the loop"),
    ("file", ("src/", "bench/", "sim/"), OS_FILES, "open openat creat fopen fdopen opendir mkstemp shm_open memfd_create",
     "hf_file_*, or env/share.h for what processes share"),
    ("memory map", ("src/", "bench/"), OS_FILES, "mmap munmap mremap", "hf_mem_alloc(), hf_mem_map_file()"),
    ("thread", ("src/", "bench/", "sim/"), OS_FILES, "pthread_create thrd_create", "hf_thread_start()"),
    ("process", ("src/", "bench/"), OS_FILES, "fork vfork execve execv execvp posix_spawn system popen",
     "the program's process file"),
    ("string", ("",), (), "strcpy strcat sprintf vsprintf gets strtok atoi atol alloca",
     "snprintf, memcpy, strtok_r, strtoul with its error checked"),
    ("assertion", ("src/", "bench/"), ("src/base/ensure",), "assert abort", "ensure() for our own bugs, an outcome for input"),
    ("bare fence", ("src/", "bench/"), ("src/base/order.h",), "atomic_thread_fence __sync_synchronize __atomic_thread_fence",
     "publish(), observe(), announce(), confirm() of base/order.h"),
]
OS_HEADERS = ("poll.h", "sys/poll.h", "sys/select.h", "sys/epoll.h", "sys/eventfd.h", "sys/timerfd.h", "sys/socket.h",
              "sys/random.h", "threads.h")
STEP_BAN = ("malloc calloc realloc free strdup pthread_mutex_lock", r"hf_(env|loop|io|dgram|stream|file|thread|mem)_\w+")
VAGUE_NAMES = {"util", "utils", "common", "misc", "helper", "helpers", "stuff", "shared"}

# (path, rule): why this one is right.
ALLOWED = {
    ("src/preload/paths.c", "file"): "stands before these calls in other programs",
}


class Source:
    """A file as text, and as code: comments and the insides of strings blanked, so that columns stay."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.lines = text.split("\n")
        self.code = blank(text, keep_strings=False)
        self.code_lines = self.code.split("\n")
        self.directives = blank(text, keep_strings=True).split("\n")

    def layer(self):
        parts = self.path.split("/")
        return parts[1] if parts[0] == "src" and len(parts) > 2 else None

    def under(self, prefixes):
        return any(self.path.startswith(prefix) for prefix in prefixes)


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank(text, keep_strings):
    def replace(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token if keep_strings else token[0] + " " * (len(token) - 2) + token[0]
        return re.sub(r"[^\n]", " ", token)

    return TOKEN.sub(replace, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


# ---- rules: each yields (line, rule, message) ----


def check_includes(source):
    ours = source.layer()
    for number, line in enumerate(source.directives, 1):
        include = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if not include:
            continue
        quote, target = include.groups()
        if target.endswith(".c"):
            yield number, "include", f"{target} is included; test through its header, or link it"
        for backend, friends in BACKENDS.items():
            if quote == '"' and target.startswith(backend + "/") \
                    and not source.under([f"src/{backend}/"] + friends):
                yield number, "backend", f"{target} belongs to {backend}; ask the contract for a capability instead"
        if quote == "<" and target in OS_HEADERS and source.under(["src/"]) and not source.under(OS_FILES):
            yield number, "layer", f"<{target}> belongs to env; go through <holdfast/env.h> or <holdfast/loop.h>"
        theirs = None
        if target.startswith("holdfast/"):
            theirs = PUBLIC_LAYER.get(target[len("holdfast/"):])
            if theirs is None and not source.under(["tests/tidy"]):
                yield number, "layer", f"<{target}> has no layer; name it in PUBLIC_LAYER of scripts/tidy.py"
        elif quote == '"' and target.split("/")[0] in LAYERS:
            theirs = target.split("/")[0]
        elif quote == '"' and source.path.startswith("src/"):
            yield number, "layer", f'"{target}": product code includes "layer/file.h" of src/ or <holdfast/...> only'
        if ours in LAYERS and theirs and theirs != ours:
            if LAYERS.index(theirs) > LAYERS.index(ours) or (ours, theirs) in BESIDE:
                yield number, "layer", (f"{ours} includes {target} of {theirs}, which is not below it; "
                                        "move the thing down, or hand it in as a callback")


def check_bans(source):
    for rule, where, but, words, substitute in BANS:
        if not source.under(where) or source.under(but):
            continue
        for found in re.finditer(r"(?<![\w.>])(" + "|".join(words.split()) + r")\s*\(", source.code):
            yield line_of(source.code, found.start()), rule, f"{found.group(1)}() is refused here; use {substitute}"


def check_steps(source):
    """A file that defines x_step(..., actions) is a step module: time is an argument, work is a result."""
    if not source.path.startswith("src/"):
        return
    if not re.search(r"^\w[^;{}()]*\b\w+_step\([^;{}]*\bactions\)\s*\{", source.code, re.M):
        return
    words, pattern = STEP_BAN
    for found in re.finditer(r"(?<![\w.>])((?:" + "|".join(words.split()) + r")|" + pattern + r")\s*\(", source.code):
        yield (line_of(source.code, found.start()), "step",
               f"{found.group(1)}() in a step module; return it as an action for the caller to carry out")


def check_test_knowledge(source):
    if not source.under(["src/", "include/"]):
        return
    for number, line in enumerate(source.code_lines, 1):
        if re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b.*\b(UNIT_?TEST\w*|TEST|TESTING|HOLDFAST_TEST\w*)\b", line):
            yield number, "test knowledge", "conditional code for tests; reach it through env, a device or a callback"
        found = re.search(r"\b\w*(for_tests?|test_only|fault_inject|inject_fault)\w*\b", line)
        if found:
            yield number, "test knowledge", f"{found.group(0)}: faults belong to the simulator's world or to the tests"


def functions(source):
    """(first line, lines, cases) of each function: in our format its braces stand in the first column."""
    begin = None
    for number, line in enumerate(source.code_lines, 1):
        if line == "{":
            begin = number
        elif line == "}" and begin is not None:
            body = source.code_lines[begin:number]
            yield begin, number - begin + 1, sum(bool(re.match(r"\s*(case\b.*|default):", at)) for at in body)
            begin = None


def check_sizes(source):
    header = source.path.endswith(".h")
    limit, lines = (H_LINES if header else C_LINES), source.text.count("\n")
    if lines > limit:
        yield limit, "size", f"{lines} lines, at most {limit}; split it by concept"
    for begin, length, cases in functions(source):
        flat_dispatch = cases * 4 >= length
        if length > FUNCTION_LINES and not flat_dispatch:
            yield begin, "size", f"a function of {length} lines, at most {FUNCTION_LINES}; name its parts"
    for number, line in enumerate(source.lines, 1):
        if len(line.expandtabs(TAB)) > COLUMNS:
            yield number, "width", f"{len(line.expandtabs(TAB))} columns, at most {COLUMNS}; break the line"


def check_opening(source):
    name = os.path.basename(source.path)
    stem = name.rsplit(".", 1)[0]
    if stem in VAGUE_NAMES:
        yield 1, "name", f"{name}: name the file for the concept in it"
    if name.endswith(".h"):
        if not source.text.startswith(f"/* {name} - "):
            yield 1, "opening", f'a header opens with "/* {name} - what it is, who owns it, on which thread"'
        if source.path.startswith(("src/", "include/")) and not re.search(r"^#ifndef HOLDFAST_\w+_H$", source.text, re.M):
            yield 1, "opening", "no include guard HOLDFAST_..._H"


def check_comments(source):
    for number, (line, code) in enumerate(zip(source.lines, source.code_lines), 1):
        if line == code:
            continue
        comment = "".join(a if b == " " else " " for a, b in zip(line, code.ljust(len(line))))
        found = re.search(r"\b(TODO|FIXME|XXX|HACK)\b", comment)
        if found:
            yield number, "comment", f"{found.group(1)}: do it now, or open an issue and say nothing here"
        if re.search(r"^\s*(//|/\*)\s*(if \(.*\)|for \(.*;.*\)|\w[\w>.\-\[\]]* = .*;|\w+\([^)]*\);|return\b.*;)\s*(\*/)?\s*$",
                     comment):
            yield number, "comment", "commented-out code; delete it, the history keeps it"


def check_packed(source):
    if not source.under(["src/", "include/"]):
        return
    for found in re.finditer(r"\}\s*__attribute__\(\(packed[^)]*\)\)", source.code):
        struct = re.findall(r"struct\s+(\w+)\s*\{", source.code[:found.start()])
        if struct and not re.search(r"_Static_assert\(sizeof\(struct " + struct[-1] + r"\)", source.code):
            yield (line_of(source.code, found.start()), "layout",
                   f"struct {struct[-1]} is a layout without _Static_assert(sizeof(struct {struct[-1]}) == ...)")


def check_names(source):
    """Public functions begin with hf_; what begins with hf_ is public."""
    public = source.path.startswith("include/holdfast/")
    if public:
        for found in re.finditer(r"^(?!static|typedef|#|extern const|\s|struct \w+ \{)[\w *]+?\b(\w+)\(", source.code, re.M):
            if not found.group(1).startswith("hf_") and found.group(1) != "__attribute__":
                yield line_of(source.code, found.start()), "name", f"{found.group(1)}() is public: call it hf_..."
    elif source.path.startswith("src/") and source.path.endswith(".h"):
        for found in re.finditer(r"^(?!#)[\w *]*?\b(hf_\w+)\([^;{]*\);", source.code, re.M):
            yield (line_of(source.code, found.start()), "name",
                   f"{found.group(1)}() is declared in an internal header; hf_ is for include/holdfast")


RULES = [check_includes, check_bans, check_steps, check_test_knowledge, check_sizes, check_opening, check_comments,
         check_packed, check_names]


def check(source):
    for rule in RULES:
        for line, name, message in rule(source):
            if (source.path, name) not in ALLOWED:
                yield f"{source.path}:{line}: {name}: {message}"


# ---- over all files ----


def check_guards(sources):
    seen = {}
    for source in sources:
        guard = re.search(r"^#ifndef (HOLDFAST_\w+_H)$", source.text, re.M)
        if not guard or not source.path.endswith(".h"):
            continue
        if guard.group(1) in seen:
            yield f"{source.path}:1: opening: include guard {guard.group(1)} is also that of {seen[guard.group(1)]}"
        seen[guard.group(1)] = source.path


def check_protocol(text, sources, mutants):
    """docs/protocol.md has every clause and rule that a comment cites; the tests and mutants that it names exist."""
    clauses = set(re.findall(r"^(?:### |\| |\* \*\*)([DRV]\d+b?)\b", text, re.M))
    for source in sources:
        if source.under(["tests/tidy"]):
            continue
        for found in re.finditer(r"(?<![\w.-])[DRV]\d{1,2}b?(?![\w])", source.text):
            if source.code[found.start()] == " " and found.group(0) not in clauses:
                yield (f"{source.path}:{line_of(source.text, found.start())}: protocol: docs/protocol.md has no "
                       f"{found.group(0)}; cite the rule that is meant, or write it there first")
    code = "\n".join(source.text for source in sources)
    for found in re.finditer(r"`([a-z0-9]+([_-])[a-z0-9]+\2[a-z0-9_-]+)`", text):
        name = found.group(1)
        if name not in mutants and name not in code:
            yield (f"docs/protocol.md:{line_of(text, found.start())}: protocol: no test or mutant is called {name}; "
                   "name the one that shows the rule")


RULE = r"(?:R-)?[KSBT][1-9]\d?|X[1-9]|(?:KV|SLOT|DUR|WAL|CT)-\d"
CITING = (("docs", ".md"), ("models", ".pml"), ("scripts", ".py"), ("sim/mutants", ".patch"))


def check_rules(text, files):
    """docs/rules.md has a row for every rule of the services that a comment, a model, a mutant or a page cites."""
    rows = set(re.findall(rf"^\| ({RULE}) \|", text, re.M))
    for file in files:
        is_code = file.path.endswith((".c", ".h"))
        if file.under(["tests/tidy"]):
            continue
        for found in re.finditer(rf"(?<![\w.-])(?:{RULE})(?![\w-])", file.text):
            if (not is_code or file.code[found.start()] == " ") and found.group(0) not in rows:
                yield (f"{file.path}:{line_of(file.text, found.start())}: rules: docs/rules.md has no "
                       f"{found.group(0)}; cite the rule that is meant, or write it there first")


PREFIXED = ("base", "env", "net", "dev", "rail", "node", "vqp", "mesh", "transfer", "smr", "kv", "broker", "proxy")
DEFINED = re.compile(r"^(?!static|typedef|struct \w+ \{|#|_Static_assert)[\w *]*?\b(\w+)\([^;{}]*\)\n\{$", re.M)


def check_prefixes(sources):
    """What a layer defines and is not static begins with the name of a file of that layer, or is public (hf_)."""
    stems = {}
    for source in sources:
        if source.path.startswith("src/"):
            stems.setdefault(source.path.split("/")[1], set()).add(os.path.basename(source.path).rsplit(".", 1)[0])
    for source in sources:
        layer = source.layer()
        if layer not in PREFIXED or not source.path.endswith(".c"):
            continue
        for found in DEFINED.finditer(source.code):
            name = found.group(1)
            if not name.startswith("hf_") and not any(re.match(stem.removesuffix("s") + r"s?(\d+c?)?(_|$)", name) for stem in stems[layer]):
                yield (f"{source.path}:{line_of(source.code, found.start(1))}: name: {name}() is not static and begins with no "
                       f"name of a file of {layer}; call it {os.path.basename(source.path)[:-2]}_...")


def check_format(root, sources):
    program = shutil.which("clang-format")
    if program is None:
        print("tidy: no clang-format here, so the format was not checked (make format installs it)")
        return
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    if " version 14." not in version:
        print(f"tidy: the format was not checked: it is that of clang-format 14, here is {version.strip()}")
        return
    done = subprocess.run([program, "--dry-run"] + [source.path for source in sources], cwd=root,
                          capture_output=True, text=True)
    for line in sorted(set(re.findall(r"^([^\s:]+:\d+):\d+: warning", done.stderr, re.M))):
        yield f"{line}: format: differs from clang-format's; make format"


def sources_of(root):
    for tree in TREES:
        for folder, folders, names in os.walk(os.path.join(root, tree)):
            folders.sort()
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        yield Source(os.path.relpath(path, root), file.read())


def pages_of(root):
    for folder, ending in CITING:
        for name in sorted(os.listdir(os.path.join(root, folder))):
            if name.endswith(ending):
                with open(os.path.join(root, folder, name), encoding="utf-8") as file:
                    yield Source(f"{folder}/{name}", file.read())


def main():
    parser = argparse.ArgumentParser(description="checks style")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    root = os.path.normpath(parser.parse_args().root)
    sources = list(sources_of(root))
    found = [message for source in sources for message in check(source)]
    with open(os.path.join(root, "docs", "protocol.md"), encoding="utf-8") as file:
        protocol = file.read()
    with open(os.path.join(root, "docs", "rules.md"), encoding="utf-8") as file:
        rules = file.read()
    mutants = {name[:-len(".patch")] for name in os.listdir(os.path.join(root, "sim", "mutants")) if name.endswith(".patch")}
    found += list(check_guards(sources)) + list(check_prefixes(sources)) + list(check_protocol(protocol, sources, mutants))
    found += list(check_rules(rules, sources + list(pages_of(root)))) + list(check_format(root, sources))
    for message in found:
        print(message)
    print(f"tidy: {len(sources)} files, {len(found)} to mend" if found else f"tidy: {len(sources)} files, all fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
