#!/usr/bin/env python3
"""Each rule of scripts/tidy.py refuses a snippet that breaks it, names a substitute, and leaves its lawful twin alone.

TAP. A case is (sentence, path, what is in the file, what its twin has instead, the rule's name).
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
sys.dont_write_bytecode = True
import tidy  # noqa: E402

TALL = "\n".join(["\tstep();"] * 70)
DISPATCH = "\n".join(f"\tcase {n}:\n\t\treturn {n};" for n in range(40))
GUARD = "#ifndef HOLDFAST_X_H\n#define HOLDFAST_X_H\n#endif\n"

CASES = [
    ("an upward include is refused", "src/dev/x.c", '#include "vqp/vqp.h"', '#include "env/share.h"', "layer"),
    ("an upward public include is refused", "src/net/x.c", "#include <holdfast/vqp.h>", "#include <holdfast/loop.h>",
     "layer"),
    ("services do not include one another", "src/broker/x.c", '#include "kv/kv.h"', '#include "smr/smr.h"', "layer"),
    ("product code does not include the simulator", "src/dev/x.c", '#include "sim/world.h"', '#include "base/list.h"',
     "layer"),
    ("the program does not include the bench", "src/cli/x.c", '#include "bench/bench.h"', '#include "cli/page.h"', "layer"),
    ("the system's headers are for env", "src/net/x.c", "#include <sys/epoll.h>", "#include <errno.h>", "layer"),
    ("a public header must have a layer", "src/dev/x.c", "#include <holdfast/new.h>", "#include <holdfast/dev.h>",
     "layer"),
    ("a backend's header stays in its folder", "src/vqp/x.c", '#include "dev/shm/shm.h"', '#include "dev/fabric.h"',
     "backend"),
    ("backends do not know one another", "src/dev/shm/x.c", '#include "dev/soft/soft.h"', '#include "dev/shm/shm.h"',
     "backend"),
    ("a .c is not included", "tests/unit/x.c", '#include "dev/dev.c"', '#include "dev/fabric.h"', "include"),
    ("the clock is read in env only", "src/vqp/x.c", "\tclock_gettime(a, b);", "\thf_env_now_ns(env);", "clock"),
    ("time() is a clock", "src/dev/x.c", "\tx = time(NULL);", "\tx = packet->time;", "clock"),
    ("nobody sleeps", "tests/unit/x.c", "\tusleep(10);", "\tlet_pass(10);", "sleep"),
    ("entropy comes from env", "src/dev/x.c", "\tgetrandom(a, 8, 0);", "\thf_env_entropy(env, a, 8);", "entropy"),
    ("unseeded randomness in tests is refused", "tests/unit/x.c", "\tx = rand();", "\tx = seeded(&seed);", "entropy"),
    ("sockets are made in env only", "src/dev/soft/x.c", "\tsocket(1, 2, 3);", "\thf_dgram_open(a, b, c, d, e);",
     "socket"),
    ("files are opened in env only", "src/vqp/x.c", "\tfopen(path, mode);", "\thf_file_open(env, path, 0, &file);",
     "file"),
    ("an operation called open is no file", "src/dev/x.c", "\topen(path, 0);", "\tkind->open(env, config);", "file"),
    ("memory is mapped in env only", "src/dev/shm/x.c", "\tmmap(a, b, c, d, e, f);", "\tshare_peer_map(a, b);",
     "memory map"),
    ("threads are started in env only", "src/dev/soft/x.c", "\tpthread_create(a, b, c, d);",
     "\thf_thread_start(a, b, c);", "thread"),
    ("processes are the program's", "src/vqp/x.c", "\tfork();", "\tfork_of_road();", "process"),
    ("unbounded string functions are refused", "src/cli/x.c", "\tsprintf(a, b);", "\tsnprintf(a, 1, b);", "string"),
    ("a ban ends at comments and strings", "src/cli/x.c", "\tstrcpy(a, b);", '\tputs("strcpy(a, b)"); /* gets() */',
     "string"),
    ("assert is not for the product", "src/vqp/x.c", "\tassert(a);", "\tensure(a);", "assertion"),
    ("memory order is named by its use", "src/dev/shm/x.c", "\tatomic_thread_fence(o);", "\tannounce();",
     "bare fence"),
    ("a step does not allocate", "src/vqp/x.c",
     "void x_step(struct x *x, struct x_actions *actions)\n{\n\tmalloc(1);\n}",
     "void x_stop(struct x *x)\n{\n\tmalloc(1);\n}", "step"),
    ("a step asks no clock", "src/vqp/x.c",
     "void x_step(struct x *x, struct x_actions *actions)\n{\n\thf_env_now_ns(env);\n}",
     "void x_step(struct x *x, uint64_t now_ns, struct x_actions *actions)\n{\n}", "step"),
    ("code for tests is refused", "src/dev/x.c", "#ifdef UNIT_TEST", "#ifdef __x86_64__", "test knowledge"),
    ("faults are not fields of the product", "src/dev/x.c", "\tint fault_injected;\n\tint drop_for_tests;", "\tint up;",
     "test knowledge"),
    ("a .c has at most 1,000 lines", "src/dev/x.c", "\n" * 1001, "\n" * 1000, "size"),
    ("a header has at most 250 lines", "src/dev/x.h", "/* x.h - */\n" + GUARD + "\n" * 247,
     "/* x.h - */\n" + GUARD, "size"),
    ("a function has at most 70 lines", "src/dev/x.c", "int x(void)\n{\n" + TALL + "\n}",
     "int x(void)\n{\n" + DISPATCH + "\n}", "size"),
    ("a line has at most 120 columns, tabs being 8", "src/dev/x.c", "\t" + "x" * 113, "\t" + "x" * 112, "width"),
    ("a header says what it is", "src/dev/x.h", GUARD, "/* x.h - a thing. */\n" + GUARD, "opening"),
    ("a header that was renamed says its new name", "src/dev/x.h", "/* y.h - a thing. */\n" + GUARD,
     "/* x.h - a thing. */\n" + GUARD, "opening"),
    ("a header has a guard", "src/dev/x.h", "/* x.h - a thing. */\n", "/* x.h - a thing. */\n" + GUARD, "opening"),
    ("a file is named for its concept", "src/dev/utils.c", "", None, "name"),
    ("what is public begins with hf_", "include/holdfast/x.h", "/* x.h - */\n" + GUARD + "int dev_open(int a);",
     "/* x.h - */\n" + GUARD + "int hf_dev_open(int a);", "name"),
    ("what begins with hf_ is public", "src/dev/x.h", "/* x.h - */\n" + GUARD + "int hf_dev_open(int a);",
     "/* x.h - */\n" + GUARD + "int dev_open(int a);", "name"),
    ("unfinished work is not left in comments", "src/dev/x.c", "/* TO" + "DO: rest */", "/* the rest is at x.h */",
     "comment"),
    ("commented-out code is refused", "src/dev/x.c", "// x = y + 1;", "// x is y plus one", "comment"),
    ("a packed layout has its size asserted", "src/dev/x.c",
     "struct y {\n\tint a;\n} __attribute__((packed));",
     "struct y {\n\tint a;\n} __attribute__((packed));\n_Static_assert(sizeof(struct y) == 4, \"\");", "layout"),
]


PROTOCOL = "### R1 One qp at a time\n*Shown by:* `a_rule_is_kept`, mutant `rule-not-kept`.\n"
PROTOCOL_CASES = [
    ("a rule that is cited stands in docs/protocol.md", "/* R2 */\n/* a_rule_is_kept */", "/* R1 */\n/* a_rule_is_kept */"),
    ("a test that docs/protocol.md names exists", "void a_rule_is_broken(void);", "void a_rule_is_kept(void);"),
]


RULES_PAGE = "| R-K1 | An epoch |\n| DUR-1 | A batch |\n"
RULES_CASES = [
    ("a rule of a service that is cited stands in docs/rules.md", "src/x.c", "/* R-K2 */", "/* R-K1, DUR-1 */"),
    ("a mutant cites a rule that stands there", "sim/mutants/x.patch", "Breaks: DUR-2: it", "Breaks: DUR-1: it"),
    ("only comments of code cite rules", "src/x.c", "int x; /* K1 */", "int K1;"),
]


PREFIX_CASES = [
    ("what is not static begins with the name of a file of its layer", "int table_put(int a)\n{\n}",
     "int list_put(int a)\n{\n}"),
    ("what is static has any name", "int put(int a)\n{\n}", "static int put(int a)\n{\n}"),
    ("a public name begins with hf_", "int hfput(int a)\n{\n}", "int hf_put(int a)\n{\n}"),
]


def rules_broken(path, text):
    found = list(tidy.check(tidy.Source(path, text)))
    return {message.split(": ")[1]: message for message in found}


def main():
    print(f"1..{len(CASES) + len(PROTOCOL_CASES) + len(PREFIX_CASES) + len(RULES_CASES) + 2}")
    all_fine, seen = True, set()
    for number, (sentence, path, bad, good, rule) in enumerate(CASES, 1):
        refused = rules_broken(path, bad).get(rule)
        left_alone = good is None or rule not in rules_broken(path, good)
        names_substitute = refused is not None and len(refused.split(": ", 2)[2]) > 20
        fine = names_substitute and left_alone
        seen.add(rule)
        all_fine &= fine
        print(f"{'ok' if fine else 'not ok'} {number} - {sentence}")
    banned = {ban[0] for ban in tidy.BANS}
    fine = banned <= seen
    all_fine &= fine
    print(f"{'ok' if fine else 'not ok'} {len(CASES) + 1} - every ban has a case {sorted(banned - seen) or ''}")
    twins = [tidy.Source(f"src/dev/{name}.h", f"/* {name}.h - */\n" + GUARD) for name in ("x", "y")]
    fine = len(list(tidy.check_guards(twins))) == 1 and not list(tidy.check_guards(twins[:1]))
    all_fine &= fine
    print(f"{'ok' if fine else 'not ok'} {len(CASES) + 2} - two headers do not share a guard")
    for number, (sentence, bad, good) in enumerate(PROTOCOL_CASES, len(CASES) + 3):
        counts = [len(list(tidy.check_protocol(PROTOCOL, [tidy.Source("tests/x.c", text)], {"rule-not-kept"})))
                  for text in (bad, good)]
        fine = counts == [1, 0]
        all_fine &= fine
        print(f"{'ok' if fine else 'not ok'} {number} - {sentence}")
    for number, (sentence, bad, good) in enumerate(PREFIX_CASES, len(CASES) + len(PROTOCOL_CASES) + 3):
        counts = [len(list(tidy.check_prefixes([tidy.Source("src/base/list.c", text)]))) for text in (bad, good)]
        fine = counts == [1, 0]
        all_fine &= fine
        print(f"{'ok' if fine else 'not ok'} {number} - {sentence}")
    for number, (sentence, path, bad, good) in enumerate(RULES_CASES, number + 1):
        counts = [len(list(tidy.check_rules(RULES_PAGE, [tidy.Source(path, text)]))) for text in (bad, good)]
        fine = counts == [1, 0]
        all_fine &= fine
        print(f"{'ok' if fine else 'not ok'} {number} - {sentence}")
    return 0 if all_fine else 1


if __name__ == "__main__":
    sys.exit(main())
