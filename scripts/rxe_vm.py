#!/usr/bin/env python3
"""Runs a command on real verbs: a stock Debian kernel with soft-RoCE (rdma_rxe) in a throw-away qemu guest.

    rxe_vm.py [--kernel PACKAGE] [--seconds N] [--memory MB] [--log] -- COMMAND

The guest sees this machine's file system, read-only below a tmpfs, so what was built here runs there; root, in the
present directory. Its exit status is the command's; 124: it ran too long; 125: the guest did not come up; 126: it
died; 77: what it takes cannot be had here. What it
needs comes from Debian and is kept in build/rxe-vm; the kernel is unpacked, never installed. Nothing outside the
guest changes. KVM is used when it works, else the guest is emulated.

rxe-guest.sh, beside this file, makes the network in the guest and says how it looks.
"""

import argparse
import glob
import lzma
import os
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(os.path.dirname(HERE), "build", "rxe-vm")
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
RXE_MODULES = ("veth", "sch_netem", "sch_ingress", "act_gact", "cls_matchall", "virtio_net", "crc32_generic",
               "ib_uverbs", "rdma_ucm", "rdma_rxe")
READY, DONE = b"@@guest-ready", b"@@guest-status"
KVM_BROKEN = b"KVM internal error"  # of qemu, where a host lends what it cannot do itself

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for m in $(cat /modules/boot); do insmod /modules/$m; done
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose host /host || poweroff -f
mount -t tmpfs tmpfs /over && mkdir /over/up /over/work
mount -t overlay -o lowerdir=/host,upperdir=/over/up,workdir=/over/work overlay /root || poweroff -f
for d in proc sys dev; do mount --move /$d /root/$d; done
mkdir -p /root/dev/shm /root/dev/pts; mount -t tmpfs tmpfs /root/dev/shm; mount -t devpts devpts /root/dev/pts
mount -t tmpfs tmpfs /root/run; mkdir /root/run/guest; cp -r /modules /job /root/run/guest
exec chroot /root /bin/bash /run/guest/job/start
"""
START = """cd {directory}
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LANG=C TERM=dumb
hostname guest; ulimit -l unlimited
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
for m in $(cat /run/guest/modules/rxe); do insmod /run/guest/modules/$m 2>/dev/null || echo "no module $m"; done
. {setup}
echo {ready}
bash -c {command} </dev/null 2>&1
echo {done} $?
sync; echo o >/proc/sysrq-trigger; sleep 5
"""


class Unavailable(Exception):
    """What the guest needs cannot be had here."""


def run(*command, **options):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    except FileNotFoundError as missing:
        raise Unavailable("%s is not installed" % command[0]) from missing
    if done.returncode != 0:
        raise Unavailable("%s: %s" % (" ".join(command), done.stdout.decode(errors="replace").strip()[-400:]))
    return done.stdout


# ---- the kernel ----

def kernel_package(wanted):
    """That package, or what it stands for: linux-image-amd64 is the newest of a release."""
    depends = run("apt-cache", "depends", wanted).decode()
    names = [line.split()[-1] for line in depends.splitlines() if "Depends: linux-image" in line]
    if not depends:
        raise Unavailable("apt knows no %s: run apt-get update" % wanted)
    return names[0] if names else wanted


def unpack_kernel(package):
    """Returns the folder with boot/ and lib/modules of the package, which is downloaded at the first call."""
    folder = os.path.join(CACHE, package)
    if os.path.exists(os.path.join(folder, "complete")):
        return folder
    os.makedirs(folder, exist_ok=True)
    run("apt-get", "download", "-qq", package, cwd=folder)
    for deb in glob.glob(os.path.join(folder, "*.deb")):
        run("dpkg-deb", "-x", deb, folder)
        os.remove(deb)
    with open(os.path.join(folder, "complete"), "w", encoding="ascii"):
        pass
    return folder


def decompress(data):
    if data[:6] == b"\xfd7zXZ\x00":
        return lzma.LZMADecompressor().decompress(data)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              check=False).stdout
    return data


def plain_kernel(folder):
    """The ELF image inside vmlinuz: qemu starts it directly, which spares an emulated guest its decompression."""
    path = os.path.join(folder, "vmlinux")
    if not os.path.exists(path):
        with open(glob.glob(os.path.join(folder, "boot", "vmlinuz-*"))[0], "rb") as file:
            image = file.read()
        setup_sectors = image[0x1F1] or 4
        offset, length = struct.unpack_from("<II", image, 0x248)
        start = (setup_sectors + 1) * 512 + offset
        kernel = decompress(image[start:start + length])
        if kernel[:4] != b"\x7fELF":
            raise Unavailable("the kernel is compressed in a way that is not known here")
        with open(path + ".new", "wb") as file:
            file.write(kernel)
        os.rename(path + ".new", path)
    return path


class Modules:
    """The modules of a kernel, by name."""

    def __init__(self, folder):
        self.root = (glob.glob(os.path.join(folder, "lib/modules/*")) +
                     glob.glob(os.path.join(folder, "usr/lib/modules/*")))[0]
        if not os.path.exists(os.path.join(self.root, "modules.dep")):
            run("depmod", "-b", self.root.split("/lib/modules")[0], os.path.basename(self.root))
        self.needs, self.paths = {}, {}
        with open(os.path.join(self.root, "modules.dep"), encoding="ascii") as file:
            for line in file:
                path, needed = line.strip().split(":")
                self.paths[self.name(path)] = path
                self.needs[self.name(path)] = [self.name(n) for n in needed.split()]

    @staticmethod
    def name(path):
        return os.path.basename(path).split(".ko")[0].replace("-", "_")

    def order(self, names):
        """File names in the order in which they can be loaded; those that are built in are left out."""
        listed = []
        for name in names:
            for needed in reversed(self.needs.get(name, [])):
                if needed not in listed:
                    listed.append(needed)
            if name in self.paths and name not in listed:
                listed.append(name)
        return listed

    def content(self, name):
        with open(os.path.join(self.root, self.paths[name]), "rb") as file:
            return decompress(file.read())


# ---- the initial file system ----

class Archive:
    """A cpio archive as the kernel reads it (newc)."""

    def __init__(self):
        self.data = bytearray()
        self.count = 0

    def entry(self, name, mode, content=b""):
        self.count += 1
        fields = (self.count, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        self.data += b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        self.data += b"\0" * (-len(self.data) % 4)
        self.data += content
        self.data += b"\0" * (-len(self.data) % 4)

    def folder(self, name):
        self.entry(name, stat.S_IFDIR | 0o755)

    def file(self, name, content, mode=0o644):
        self.entry(name, stat.S_IFREG | mode, content)

    def finish(self):
        self.entry("TRAILER!!!", 0)
        return bytes(self.data)


def base_archive(folder):
    """What is the same for every run; made once for a kernel."""
    path = os.path.join(folder, "initrd")
    if os.path.exists(path) and os.path.getmtime(path) >= os.path.getmtime(__file__):
        return path
    archive, modules = Archive(), Modules(folder)
    for name in ("bin", "proc", "sys", "dev", "host", "over", "root", "modules", "job"):
        archive.folder(name)
    with open("/bin/busybox", "rb") as file:
        archive.file("bin/busybox", file.read(), 0o755)
    archive.file("init", INIT.encode(), 0o755)
    boot = modules.order(BOOT_MODULES)
    rxe = [name for name in modules.order(RXE_MODULES) if name not in boot]
    for name in boot + rxe:
        archive.file("modules/" + name, modules.content(name))
    archive.file("modules/boot", "\n".join(boot).encode())
    archive.file("modules/rxe", "\n".join(rxe).encode())
    with open(path + ".new", "wb") as file:
        file.write(archive.finish())
    os.rename(path + ".new", path)
    return path


def job_archive(command):
    archive = Archive()
    archive.file("job/start", START.format(
        directory=shlex.quote(os.getcwd()), setup=shlex.quote(os.path.join(HERE, "rxe-guest.sh")),
        ready=READY.decode(), done=DONE.decode(), command=shlex.quote(command)).encode())
    return archive.finish()


# ---- the guest ----

NO_KVM = os.path.join(CACHE, "no-kvm")  # there: it was tried on this machine, and is not tried again
KVM_BOOT_SECONDS = 20


def accelerators():
    usable = os.access("/dev/kvm", os.R_OK | os.W_OK) and not os.path.exists(NO_KVM)
    return ["kvm", "tcg,thread=multi"] if usable else ["tcg,thread=multi"]


def qemu(accelerator, options, folder, initrd):
    return ["qemu-system-x86_64", "-accel", accelerator, "-cpu", "host" if accelerator == "kvm" else "max",
            "-machine", "pc,usb=off,vmport=off", "-smp", "2", "-m", str(options.memory), "-nodefaults",
            "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
            "-kernel", plain_kernel(folder), "-initrd", initrd,
            "-append", "console=ttyS0 panic=-1 quiet loglevel=%d softlockup_panic=1 "
                       "softlockup_all_cpu_backtrace=1 mitigations=off tsc=reliable clocksource=tsc nokaslr "
                       "random.trust_cpu=on audit=0 net.ifnames=0" % (7 if options.log else 5),
            "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host"] + options.qemu


def kill_after(seconds, guest):
    timer = threading.Timer(seconds, guest.kill)
    timer.daemon = True  # it keeps nobody waiting
    timer.start()
    return timer


def boot(accelerator, options, folder, initrd):
    """Copies what the command prints to stdout; returns its status, 124, or None: the guest did not come up."""
    began, status, up, tail = time.monotonic(), None, False, []
    with subprocess.Popen(qemu(accelerator, options, folder, initrd), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as guest:
        timer = kill_after(KVM_BOOT_SECONDS if accelerator == "kvm" else options.seconds, guest)
        try:
            for line in guest.stdout:
                line = line.replace(b"\r", b"")
                if line.startswith(READY):
                    up = True
                    if accelerator == "kvm":
                        timer.cancel()
                        timer = kill_after(options.seconds, guest)
                elif line.startswith(DONE):
                    status = int(line.split()[1])
                elif line.startswith(KVM_BROKEN):
                    guest.kill()  # it would wait for a debugger
                elif up and status is None or options.log:
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()
                tail = tail[-30:] + [line]
        except BaseException:
            guest.kill()  # nobody hears it any more
            raise
        finally:
            timer.cancel()
    if status is None and up:
        late = time.monotonic() - began >= options.seconds
        print("rxe_vm: the guest %s" % ("ran for more than %d s" % options.seconds if late else "died"), file=sys.stderr)
        return 124 if late else 126
    if status is None and accelerator != "kvm":
        sys.stderr.buffer.write(b"".join(tail))
    return status


def end_on_sigterm():
    """Whoever is told to go takes its guest along."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def main():
    end_on_sigterm()
    parser = argparse.ArgumentParser(description="runs a command in a guest with soft-RoCE")
    parser.add_argument("--kernel", default="linux-image-amd64", help="Debian package of the kernel (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--memory", type=int, default=2048)
    parser.add_argument("--log", action="store_true", help="show the guest's kernel log")
    parser.add_argument("--qemu", action="append", default=[], help="one more argument for qemu")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    try:
        for needed in ("qemu-system-x86_64", "busybox"):
            if shutil.which(needed) is None:
                raise Unavailable("%s is not installed" % needed)
        folder = unpack_kernel(kernel_package(options.kernel))
        base = base_archive(folder)
        with tempfile.NamedTemporaryFile(dir=folder, prefix="initrd-") as initrd:
            with open(base, "rb") as file:
                initrd.write(file.read())
            initrd.write(job_archive(" ".join(options.command)))
            initrd.flush()
            for accelerator in accelerators():
                status = boot(accelerator, options, folder, initrd.name)
                if status is not None:
                    return status
                if accelerator == "kvm":
                    with open(NO_KVM, "w", encoding="ascii") as file:
                        file.write("a guest did not come up with it; remove this file to try again\n")
    except Unavailable as why:
        print("rxe_vm: %s" % why, file=sys.stderr)
        return 77
    return 125


if __name__ == "__main__":
    sys.exit(main())
