"""Stops a program of Penstock's at exact moments of its run, by ptrace(2), of which the program knows nothing.

What it writes to the journal of its run tells at which step it is. A moment is one of

    begun:STEP      the step is in the journal as begun, and nothing of it is done
    change:STEP:N   the N-th change since the step's batch was begun is about to be made
    changed:STEP:N  the same change is made
    done:STEP       the step is carried out, and what came of it is about to be written
    told:STEP       that is written, and nothing more is done

A change is a system call of the program that changes the machine: see `change_of`.
"""
import ctypes
import errno
import json
import os
import re
import select
import signal
import struct
import subprocess
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
# linux/ptrace.h, and the places of x86-64's registers in its user_regs_struct.
CONT, GETREGS, SETREGS, DETACH, SYSCALL, SEIZE, INTERRUPT, GET_SYSCALL_INFO = 7, 12, 13, 17, 24, 0x4206, 0x4207, 0x420E
TRACESYSGOOD, TRACECLONE = 1, 8
RAX, ORIG_RAX = 10, 15
ENTRY = 1
WALL = 0x40000000
# asm/unistd_64.h
WRITE, WRITEV, PWRITE, SENDTO, SENDMSG, OPENAT, CLONE, FORK, VFORK, CLONE3 = 1, 20, 18, 44, 46, 257, 56, 57, 58, 435
IOCTL = 16
DIRECTORY_CALLS = {
    82: "rename", 83: "mkdir", 84: "rmdir", 86: "link", 87: "unlink", 88: "symlink", 90: "chmod", 92: "chown",
    165: "mount", 166: "umount2", 258: "mkdirat", 260: "fchownat", 263: "unlinkat", 264: "renameat", 265: "linkat",
    266: "symlinkat", 268: "fchmodat", 316: "renameat2",
}  # fmt: skip
# Those that `change_of` knows.
CHANGING_CALLS = {WRITE, WRITEV, PWRITE, SENDTO, SENDMSG, OPENAT, CLONE, FORK, VFORK, CLONE3, IOCTL, *DIRECTORY_CALLS}
CLONE_THREAD, O_CREAT = 0x10000, 0o100
# `NVME_IOCTL_ADMIN_CMD` of linux/nvme_ioctl.h, and the admin commands of NVMe that only ask: Get Log Page, Identify, Get Features.
NVME_ADMIN, NVME_QUESTIONS = 0xC0484E41, {0x02, 0x06, 0x0A}
# Where serial ports of virtio are, one of which may lead to an embedded switch.
SWITCH_LINE = "/dev/vport"


def ptrace(request, pid, address=0, data=0):
    result = libc.ptrace(request, pid, address, data)
    if result < 0:
        raise OSError(ctypes.get_errno(), "ptrace %#x" % request)
    return result


def names(directory):
    try:
        return set(os.listdir(directory))
    except FileNotFoundError:
        return set()


def said(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def begun_in(runs, run):
    """The steps of a run that were begun, those together that were begun together."""
    whole = (said("%s/%s/journal" % (runs, run)) or "").splitlines()
    return [entry["steps"] for entry in map(json.loads, whole) if entry["entry"] == "begun"]


def run_numbers(runs):
    return {name for name in names(runs) if name.isdigit()}


class Ended(Exception):
    """The program ended before the moment came."""

    def __init__(self, status):
        super().__init__("it ended with %d" % status)
        self.status = status


class Gate:
    """Holds whoever opens a directory until it is let through, by fanotify(7): nothing is missed, however busy the machine is."""

    def __init__(self, directory):
        # FAN_CLASS_CONTENT, FAN_NONBLOCK, FAN_CLOEXEC; then FAN_MARK_ADD, and FAN_OPEN_PERM of a directory (FAN_ONDIR).
        self.file = libc.fanotify_init(0x4 | 0x2 | 0x1, os.O_RDONLY)
        mask = ctypes.c_uint64(0x10000 | 0x40000000)
        if self.file < 0 or libc.fanotify_mark(self.file, 1, mask, -100, directory.encode()) < 0:
            raise OSError(ctypes.get_errno(), "fanotify", directory)

    def opened(self, within):
        """Somebody who stands at the gate, as what is to be written to let him through; nobody within so many seconds."""
        if not select.select([self.file], [], [], within)[0]:
            return None
        event = struct.unpack_from("<IBBHQii", os.read(self.file, 24))
        return event[5]

    def let_through(self, one):
        os.write(self.file, struct.pack("<iI", one, 1))
        os.close(one)


class Program:
    """A program that is started, or one that runs already, under watch; `runs` is where it makes a directory for its run."""

    def __init__(self, runs, words=None, pid=None, variables=None):
        self.runs = runs
        self.before = run_numbers(runs)
        self.is_child = pid is None
        self.threads = set()
        # The last call that each thread began.
        self.last = {}
        self.output = "/run/campaign.log"
        if pid is None:
            log = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            quiet = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
            quiet.append((os.POSIX_SPAWN_OPEN, 2, self.output, log, 0o600))
            environment = {**os.environ, **(variables or {})}
            pid = os.posix_spawnp(words[0], words, environment, file_actions=quiet)
        self.pid = pid
        for thread in sorted(map(int, names("/proc/%d/task" % pid) or {pid})):
            ptrace(SEIZE, thread, 0, TRACESYSGOOD | TRACECLONE)
            self.threads.add(thread)

    def wait(self, options=0):
        """The next stop of one of its threads: its number and its status, or nothing yet."""
        thread, status = os.waitpid(-1, WALL | options)
        if thread == 0:
            return None
        if not os.WIFSTOPPED(status):
            self.threads.discard(thread)
            if thread == self.pid:
                raise Ended(os.waitstatus_to_exitcode(status))
            return self.wait(options)
        self.threads.add(thread)
        return thread, status

    def go_on(self, request, thread, status):
        # A stop that was asked for, or of a system call, hands no signal on.
        number = os.WSTOPSIG(status)
        asked = status >> 16 or number == signal.SIGTRAP | 0x80
        try:
            ptrace(request, thread, 0, 0 if asked else number)
        except ProcessLookupError:
            pass

    def to_its_run(self, early, thorough):
        """Lets it run until it has a directory for its run, or until `early` is in the journal there when there is such a line; then
        its calls are stopped at. What is `thorough` stops at all calls from the first on: it takes long, and misses nothing."""
        # A run's directory is made under another name, gets its own, and then the directory above is opened to be synced.
        own = "%s/%04d" % (self.runs, max(map(int, self.before), default=0) + 1)
        gate = None if thorough or early else Gate(self.runs)
        while early or gate:
            stop = self.wait(os.WNOHANG)
            if stop:
                self.go_on(CONT, *stop)
            elif gate:
                opened = gate.opened(0.01)
                if opened is not None:
                    is_there = os.path.exists(own)
                    if is_there:
                        self.interrupt()
                    gate.let_through(opened)
                    if is_there:
                        os.close(gate.file)
                        return
            elif early in (said(own + "/journal") or ""):
                break
            else:
                time.sleep(0.001)
        self.interrupt()

    def interrupt(self):
        for thread in list(self.threads):
            try:
                ptrace(INTERRUPT, thread)
            except ProcessLookupError:
                self.threads.discard(thread)

    def calls(self):
        """The system calls from now on that may change the machine, before each (`entering`) and after it: (thread, entering, number,
        arguments). It stands still until the next is asked for."""
        # A run makes thousands of calls that change nothing: as little as possible is done about each of these.
        info = (ctypes.c_ubyte * 88)()
        at = ctypes.addressof(info)
        while True:
            thread, status = self.wait()
            if status >> 8 == signal.SIGTRAP | 0x80:
                if libc.ptrace(GET_SYSCALL_INFO, thread, 88, at) < 0:
                    continue
                entering = info[0] == ENTRY
                if entering:
                    call = struct.unpack_from("<7Q", info, 24)
                    if call[0] in CHANGING_CALLS:
                        self.last[thread] = call
                    else:
                        self.last.pop(thread, None)
                if thread in self.last:
                    number, *arguments = self.last[thread]
                    yield thread, entering, number, arguments
            self.go_on(SYSCALL, thread, status)

    def memory(self, address, length):
        with open("/proc/%d/mem" % self.pid, "rb", 0) as memory:
            memory.seek(address)
            return memory.read(length)

    def name_of(self, descriptor):
        try:
            return os.readlink("/proc/%d/fd/%d" % (self.pid, descriptor & 0xFFFFFFFF))
        except OSError:
            return ""

    def entries_written(self, number, arguments):
        """The entries that a write(2) has for the journal of its run."""
        if number != WRITE:
            return []
        name = self.name_of(arguments[0])
        # An undo also writes to the journals of the runs that it takes back.
        if not (name.startswith(self.runs) and name.endswith("/journal")) or name.split("/")[-2] in self.before:
            return []
        return [json.loads(line) for line in self.memory(arguments[1], arguments[2]).splitlines()]

    def change_of(self, number, arguments):
        """What of the machine a system call changes, in words: an attribute of the kernel's or a file is written, made, moved or
        removed, netlink, a drive or an embedded switch is asked for something else than to tell, a program is started. Nothing for all
        other calls, and for the records that Penstock keeps of its runs."""
        if number in (WRITE, WRITEV, PWRITE):
            name = self.name_of(arguments[0])
            if name.startswith(SWITCH_LINE) and number == WRITE:
                return self.switch_request(arguments)
            return "write %s" % name if name.startswith("/") and not self.is_record(name) else None
        if number == OPENAT:
            name = self.path(*arguments[:2])
            return "create %s" % name if arguments[2] & O_CREAT and not self.is_record(name) else None
        if number in DIRECTORY_CALLS:
            name = self.text(arguments[0]) if number < 250 else self.path(*arguments[:2])
            return "%s %s" % (DIRECTORY_CALLS[number], name) if not self.is_record(name) else None
        if number in (SENDTO, SENDMSG) and self.name_of(arguments[0]).startswith("socket:"):
            return self.netlink(number, arguments)
        if number == IOCTL:
            command = self.memory(arguments[2], 1)[0] if arguments[1] == NVME_ADMIN else None
            return None if command is None or command in NVME_QUESTIONS else "NVMe admin command %#x" % command
        if number in (FORK, VFORK) or (number == CLONE and not arguments[0] & CLONE_THREAD):
            return "start a program"
        if number == CLONE3 and not struct.unpack("<Q", self.memory(arguments[0], 8))[0] & CLONE_THREAD:
            return "start a program"
        return None

    def switch_request(self, arguments):
        """What a line of docs/switch.md's control protocol asks a switch to change."""
        asked = re.search(rb'"do":"(\w+)"', self.memory(arguments[1], min(arguments[2], 4096)))
        return "switch %s" % asked[1].decode() if asked and asked[1] != b"get" else None

    def is_record(self, name):
        return name.startswith((self.runs, "/run/campaign", "/dev/")) or name.endswith((".lock", "/lock")) or "/progress.json" in name

    def path(self, directory, address):
        """A path that is told as a directory that is open and a name in there."""
        name = self.text(address)
        return name if name.startswith("/") else "%s/%s" % (self.name_of(directory), name)

    def text(self, address):
        try:
            return self.memory(address, 256).split(b"\0")[0].decode(errors="replace") if address else ""
        except OSError:
            return ""

    def netlink(self, number, arguments):
        address, length = arguments[1], arguments[2]
        try:
            if number == SENDMSG:
                # struct msghdr: the third field is the array of pieces, each with its address and length.
                pieces, count = struct.unpack_from("<QQ", self.memory(arguments[1], 56), 16)
                if not count:
                    return None
                address, length = struct.unpack("<QQ", self.memory(pieces, 16))
            head = self.memory(address, min(length, 16))
        except OSError:
            return None
        if len(head) < 16:
            return None
        kind = struct.unpack_from("<H", head, 4)[0]
        # linux/rtnetlink.h: of four kinds of a message the third is a question.
        return "netlink message %d" % kind if 16 <= kind < 128 and kind & 3 != 2 else None

    def until(self, moment, batches, thorough=False):
        """Stops it at a moment; it begins its steps in these batches. Raises `Ended` when it ends before."""
        kind, step, *nth = moment.split(":")
        step, nth = int(step), int(nth[0]) if nth else 0
        at = next(at for at, batch in enumerate(batches) if step in batch)
        # To be stopped at every call costs much: not long before the batch.
        self.to_its_run('"begun","steps":[%d' % batches[at - 2][0] if at >= 2 else None, thorough)
        begun, count, held = False, 0, None
        for thread, entering, number, arguments in self.calls():
            for entry in self.entries_written(number, arguments):
                if entry["entry"] == "begun" and step in entry["steps"] and not entering:
                    begun = True
                    if kind == "begun":
                        return thread
                if entry["entry"] == "outcome" and entry["step"] == step and kind == ("done" if entering else "told"):
                    return thread
            if not begun or not kind.startswith("change"):
                continue
            if entering and self.change_of(number, arguments):
                count += 1
                if count == nth:
                    held = thread
                    if kind == "change":
                        return thread
            elif not entering and held == thread:
                return thread

    def resume(self, thread, request=SYSCALL):
        try:
            ptrace(request, thread)
        except ProcessLookupError:
            pass

    def fail(self, thread, step):
        """Has the change at which it stands fail, and all that follow until what came of the step is written."""
        number, *arguments = self.last[thread]
        failed, failing = [self.change_of(number, arguments)], {}
        self.deny(thread)
        failing[thread] = errno.EIO
        self.resume(thread)
        for one, entering, number, arguments in self.calls():
            if not entering and one in failing:
                registers = self.registers(one)
                registers[RAX] = ctypes.c_ulonglong(-failing.pop(one)).value
                ptrace(SETREGS, one, 0, ctypes.addressof(registers))
                continue
            entries = self.entries_written(number, arguments)
            if any(entry["entry"] == "outcome" and entry["step"] == step for entry in entries):
                self.resume(one)
                return failed
            what = entering and self.change_of(number, arguments)
            if what:
                failed.append(what)
                self.deny(one)
                failing[one] = errno.EAGAIN if what.startswith("start") else errno.EIO
        return failed

    def registers(self, thread):
        registers = (ctypes.c_ulonglong * 27)()
        ptrace(GETREGS, thread, 0, ctypes.addressof(registers))
        return registers

    def deny(self, thread):
        """A system call that is begun becomes one that does not exist."""
        registers = self.registers(thread)
        registers[ORIG_RAX] = ctypes.c_ulonglong(-1).value
        ptrace(SETREGS, thread, 0, ctypes.addressof(registers))

    def to_its_end(self, within):
        """Lets it run on, unwatched; gives how it ended, or nothing when it has not within so many seconds."""
        deadline = time.monotonic() + within
        try:
            while time.monotonic() < deadline:
                stop = self.wait(os.WNOHANG)
                if stop:
                    self.go_on(CONT, *stop)
                else:
                    time.sleep(0.01)
        except Ended as ended:
            return ended.status
        return None

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        try:
            while True:
                self.wait()
        except Ended as ended:
            return ended.status

    def changes(self):
        """Runs it to its end; gives for each batch of steps the changes that are made between its begin and its first outcome."""
        self.to_its_run(None, thorough=False)
        batches, current = [], None
        try:
            for _, entering, number, arguments in self.calls():
                for entry in self.entries_written(number, arguments):
                    if entry["entry"] == "begun" and not entering:
                        current = {"steps": entry["steps"], "changes": []}
                        batches.append(current)
                    elif entry["entry"] in ("outcome", "end") and entering:
                        current = None
                what = entering and current is not None and self.change_of(number, arguments)
                if what:
                    current["changes"].append(what)
        except Ended as ended:
            return ended.status, batches


def run(*words, **more):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, **more)
