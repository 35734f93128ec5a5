#!/usr/bin/env python3
"""test_install.py BUILD CC - what `meson install` puts down is whole: a program outside the tree can be built with it.

TAP. Installs into a scratch directory; everything after that uses only what is there.
"""
import os
import re
import subprocess
import sys
import tempfile

PROGRAM = """\
#include <holdfast/vqp.h>
#include <stdio.h>
/* Names of the program's that the library has too. */
int ensure_failed, crc32, list_init, log_info;
int main(void)
{
	struct hf_error error = {{0}};
	struct hf_node_config config;
	int result = hf_node_config_parse("[", 1, &config, &error);
	printf("%d %s\\n", result, error.text);
	for (const struct hf_dev_kind *kind = hf_dev_kinds(); kind->name != NULL; kind++)
		printf("%s\\n", kind->name);
	return result < 0 && error.text[0] != 0 ? 0 : 1;
}
"""


class Tap:
    def __init__(self):
        self.number, self.fine = 0, True

    def point(self, sentence, fine, said=""):
        self.number += 1
        self.fine &= bool(fine)
        print(f"{'ok' if fine else 'not ok'} {self.number} - {sentence}")
        for line in ([] if fine else str(said).splitlines()):
            print(f"# {line}")
        return fine


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, **more)


def find(root, name):
    return sorted(os.path.join(folder, file) for folder, _, files in os.walk(root) for file in files if
                  re.fullmatch(name, file))


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def declared(headers):
    """Functions and objects of the headers that are not defined in them."""
    names = set()
    for header in headers:
        with open(header, encoding="utf-8") as file:
            text = without_comments(file.read())
        names |= set(re.findall(r"^(?!static|\s|#|typedef)[\w *]*?\b(hf_\w+)\s*\([^;{]*\)[^;{]*;", text, re.M))
        names |= set(re.findall(r"^extern\s[^;(]*?(hf_\w+)[,;\[]", text, re.M))
    return names


def main():
    build, compiler = sys.argv[1], sys.argv[2:]
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="holdfast-install-") as root:
        done = run("meson", "install", "-C", build, "--no-rebuild", "--destdir", root)
        if not tap.point("meson install succeeds", done.returncode == 0, done.stdout + done.stderr):
            print("1..1")
            return 1
        programs = find(root, "holdfast(-sim)?")
        tap.point("the program and the simulator are installed",
                  {"holdfast", "holdfast-sim"} <= {os.path.basename(path) for path in programs}, programs)
        help_said = run([path for path in programs if path.endswith("/holdfast")][0], "help")
        tap.point("the installed program runs", help_said.returncode == 0, help_said.stderr)
        with_library = run([path for path in programs if path.endswith("/holdfast")][0], "run", "--", "sh", "-c",
                           "echo $LD_PRELOAD")
        tap.point("it finds the library for unmodified programs where it was installed",
                  with_library.returncode == 0 and with_library.stdout.startswith(root), with_library)
        bench = run([path for path in programs if path.endswith("/holdfast")][0], "bench", "--json")
        tap.point("it says how to get holdfast-bench, which is not installed by default",
                  bench.returncode == 2 and "-Dbench=true" in bench.stderr and not find(root, "holdfast-bench.*"), bench)
        tap.point("it has man pages", find(root, r"holdfast.*\.1(\.gz)?"), "no holdfast*.1")
        library = find(root, r"libholdfast\.so\.\d.*")
        archive = find(root, r"libholdfast\.a")
        tap.point("the library is installed, shared and static", library and archive, find(root, ".*"))
        headers = find(os.path.join(root), r".*\.h")
        folders = {os.path.basename(os.path.dirname(header)) for header in headers}
        tap.point("headers are in include/holdfast", headers and folders == {"holdfast"}, headers)
        include = os.path.dirname(os.path.dirname(headers[0]))
        for header in headers:
            name = os.path.basename(header)
            unit = f"#include <holdfast/{name}>\n#include <holdfast/{name}>\nextern int unit;\n"
            done = run(*compiler, "-std=c17", "-pedantic", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE",
                       "-fsyntax-only", "-I", include, "-x", "c", "-", input=unit)
            tap.point(f"{name} stands alone", done.returncode == 0, done.stderr)

        exported = {line.split()[-1].split("@")[0] for line in
                    run("nm", "-D", "--defined-only", library[0]).stdout.splitlines() if line.strip()}
        strangers = sorted(name for name in exported if not name.startswith("hf_"))
        tap.point("the library exports hf_* only", exported and not strangers, strangers)
        of_archive = {line.split()[-1] for line in run("nm", "-g", "--defined-only", archive[0]).stdout.splitlines()
                      if len(line.split()) == 3}
        tap.point("the archive exports the same", of_archive == exported, sorted(of_archive ^ exported))
        public = declared(headers)
        tap.point("every function of a header is in the library", public <= exported, sorted(public - exported))
        tap.point("every exported symbol is in a header", exported <= public, sorted(exported - public))

        package = os.path.dirname(find(root, r"holdfast\.pc")[0])
        world = dict(os.environ, PKG_CONFIG_PATH=package, PKG_CONFIG_SYSROOT_DIR=root,
                     LD_LIBRARY_PATH=os.path.dirname(library[0]))
        source, program = os.path.join(root, "program.c"), os.path.join(root, "program")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        flags = run("pkg-config", "--cflags", "--libs", "holdfast", env=world)
        done = run(*compiler, "-std=c17", "-D_GNU_SOURCE", source, "-o", program, *flags.stdout.split(), env=world)
        tap.point("a program builds with pkg-config alone", flags.returncode == 0 and done.returncode == 0,
                  flags.stderr + done.stderr)
        done = run(program, env=world) if os.path.exists(program) else None
        tap.point("and runs", done and done.returncode == 0, done and f"{done.returncode}: {done.stdout}{done.stderr}")
        flags = run("pkg-config", "--cflags", "--libs", "--static", "holdfast", env=dict(os.environ, PKG_CONFIG_PATH=package))
        others = [flag for flag in flags.stdout.split() if flag != "-lholdfast" and not flag.startswith(("-L", "-I"))]
        done = run(*compiler, "-std=c17", "-D_GNU_SOURCE", "-I", include, source, "-o", program, archive[0], *others)
        tap.point("a program builds with the static library", done.returncode == 0, done.stderr)
        done = run(program) if done.returncode == 0 else None
        tap.point("and runs, too", done and done.returncode == 0, done and done.stderr)
    print(f"1..{tap.number}")
    return 0 if tap.fine else 1


if __name__ == "__main__":
    sys.exit(main())
