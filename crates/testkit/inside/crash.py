#!/usr/bin/python3
"""What a crash leaves, seen on a board without Penstock's help.

    crash.py kill MODEL [MOMENT...]
    crash.py state [FILE...]
    crash.py torn

`kill` kills `penstock apply` (SIGKILL) at exact moments, each followed by an undo and by another apply, and compares what is there.
MOMENT is `begun:STEP` (the step is in the journal as begun, and nothing of it is done), `done:STEP` (it is carried out, and
what came of it is about to be written) or `told:STEP` (that is written, and nothing more is done); without any, `done` of
every step. One line of JSON for each moment, and one before them. The moments are exact because the system calls of
`penstock` are stopped at (ptrace), which it knows nothing of.

`state` prints what is there as JSON, these files too: read with `ip`, from sysfs, from LXC, from the control groups and the
masks of interrupts. `torn` prints what of
Penstock's files is neither whole nor absent, one a line.
"""
import ctypes
import glob
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

RUNS = "/var/lib/penstock/runs"
GUESTS = "/run/penstock/guests"

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
# linux/ptrace.h, and the places of x86-64's registers in its user_regs_struct.
CONT, GETREGS, SYSCALL, SEIZE, INTERRUPT, TRACESYSGOOD = 7, 12, 24, 0x4206, 0x4207, 1
RAX, RDX, RSI, RDI, ORIG_RAX = 10, 12, 13, 14, 15
WRITE, ENOSYS = 1, 38


def ptrace(request, pid, address=0, data=0):
    if libc.ptrace(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace %#x" % request)


def names(directory):
    try:
        return set(os.listdir(directory))
    except FileNotFoundError:
        return set()


def entries_written(pid, registers):
    """The entries that a write(2) which is begun or over has for a journal."""
    try:
        name = os.readlink("/proc/%d/fd/%d" % (pid, registers[RDI]))
    except OSError:
        return []
    if not (name.startswith(RUNS) and name.endswith("/journal")):
        return []
    with open("/proc/%d/mem" % pid, "rb", 0) as memory:
        memory.seek(registers[RSI])
        return [json.loads(line) for line in memory.read(registers[RDX]).splitlines()]


def is_moment(kind, step, entry, entering):
    if entry["entry"] == "begun":
        return kind == "begun" and step in entry["steps"] and not entering
    return entry["entry"] == "outcome" and entry["step"] == step and kind == ("done" if entering else "told")


def begun_in(run):
    """The steps of a run that were begun, those together that were begun together."""
    whole = (said("%s/%s/journal" % (RUNS, run)) or "").splitlines()
    return [entry["steps"] for entry in map(json.loads, whole) if entry["entry"] == "begun"]


def killed_at(moment, batches, program):
    """Runs a program, which begins its steps in these batches, and kills it at that moment; gives how it ended, -9 when it
    was killed."""
    kind, step = moment.split(":")
    step = int(step)
    at = next(at for at, batch in enumerate(batches) if step in batch)
    # To be stopped at every call costs much: not before the last batch but one.
    early = '"begun","steps":[%d' % batches[at - 2][0] if at >= 2 else None
    before = names(RUNS)
    quiet = [(os.POSIX_SPAWN_OPEN, n, "/dev/null", os.O_RDWR, 0) for n in (1, 2)]
    pid = os.posix_spawnp(program[0], program, os.environ, file_actions=quiet)
    ptrace(SEIZE, pid, 0, TRACESYSGOOD)

    def go_on(request, status):
        # A stop that was asked for hands no signal on.
        ptrace(request, pid, 0, 0 if status >> 16 else os.WSTOPSIG(status))

    # It writes nothing that is to be taken back before it makes a directory for its run.
    while not any(name.isdigit() for name in names(RUNS) - before):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found and not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        if found:
            go_on(CONT, status)
        time.sleep(0.001)
    journal = "%s/%s/journal" % (RUNS, max(name for name in names(RUNS) - before if name.isdigit()))
    while early and early not in (said(journal) or ""):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
        time.sleep(0.001)
    ptrace(INTERRUPT, pid)
    registers = (ctypes.c_ulonglong * 27)()
    while True:
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        if os.WSTOPSIG(status) != signal.SIGTRAP | 0x80:
            go_on(SYSCALL, status)
            continue
        ptrace(GETREGS, pid, 0, ctypes.addressof(registers))
        if registers[ORIG_RAX] == WRITE:
            entering = ctypes.c_longlong(registers[RAX]).value == -ENOSYS
            if any(is_moment(kind, step, entry, entering) for entry in entries_written(pid, registers)):
                os.kill(pid, signal.SIGKILL)
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        ptrace(SYSCALL, pid)


def run(*words):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def said(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def links(*where):
    """The interfaces of a network namespace, without what changes by itself (numbers, carrier)."""
    kept = ("address", "mtu", "permaddr", "altnames", "master", "vfinfo_list")
    found = {}
    for link in json.loads(run(*where, "ip", "-d", "-j", "link").stdout or "[]"):
        one = {key: link[key] for key in kept if key in link}
        one["up"] = "UP" in link["flags"]
        one["kind"] = link.get("linkinfo", {}).get("info_kind")
        found[link["ifname"]] = one
    for link in json.loads(run(*where, "ip", "-j", "address").stdout or "[]"):
        addresses = (address for address in link.get("addr_info", []) if address.get("scope") != "link")
        found[link["ifname"]]["addresses"] = sorted(
            "%s/%d" % (address["local"], address["prefixlen"]) for address in addresses
        )
    return found


def guests():
    found = {}
    for directory in sorted(glob.glob(GUESTS + "/penstock-*")):
        name = os.path.basename(directory)
        # What an interface is called before it is the guest's is the kernel's choice.
        lines = (line for line in (said(directory + "/config") or "").splitlines() if ".link = " not in line)
        one = {"config": hashlib.sha256("\n".join(lines).encode()).hexdigest()}
        pid = run("lxc-info", "-P", GUESTS, "-n", name, "-pH").stdout.strip()
        one["running"] = bool(pid)
        if pid:
            one["links"] = links("nsenter", "-t", pid, "-n")
        found[name] = one
    return found


def held(path):
    """What each of these files holds, as far as they are there."""
    return {name: said(name) for name in sorted(glob.glob(path))}


def interrupts():
    """Where each interrupt that somebody has may be delivered, by its place at its controller: numbers are given anew."""
    found = {}
    for line in (said("/proc/interrupts") or "").splitlines()[1:]:
        label, _, rest = line.partition(":")
        words = [word for word in rest.split() if not word.isdigit()]
        if label.strip().isdigit() and len(words) > 2:
            found[" ".join(words[:2])] = said("/proc/irq/%s/smp_affinity_list" % label.strip())
    return found


def scheduled():
    """How the processes in control groups of containers are scheduled, the same ones once."""
    found = set()
    for path in glob.glob("/sys/fs/cgroup/lxc.payload.*/cgroup.procs"):
        for process in (said(path) or "").split():
            said_of = run("chrt", "-p", process).stdout.splitlines()[:2]
            found.add(" ".join([said("/proc/%s/comm" % process) or ""] + [line.rsplit(": ", 1)[-1] for line in said_of]))
    return sorted(found)


def realtime():
    """What decides how late threads wake, as far as anybody changes it."""
    groups = {}
    root = "/sys/fs/cgroup"
    for path, _, _ in os.walk(root):
        # LXC makes this group with its first container and leaves it, and switches on the controllers; of ours is cpuset alone.
        if path == root + "/lxc.pivot":
            continue
        wanted = ("cgroup.subtree_control", "cpuset.cpus", "cpuset.cpus.exclusive", "cpuset.cpus.partition")
        groups[path] = {name: said(path + "/" + name) for name in wanted}
    if set((groups[root]["cgroup.subtree_control"] or "").split()) - {"cpuset"}:
        groups[root]["cgroup.subtree_control"] = ""
    knobs = {}
    for pattern in (
        "/proc/irq/default_smp_affinity",
        "/proc/sys/kernel/sched_rt_*_us",
        "/sys/devices/virtual/workqueue/cpumask",
        "/sys/bus/workqueue/devices/writeback/cpumask",
        "/sys/devices/system/cpu/cpu[0-9]*/power/pm_qos_resume_latency_us",
        "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_*",
        "/sys/kernel/debug/sched/fair_server/cpu[0-9]*/runtime",
        "/sys/fs/cgroup/cpuset.cpus.isolated",
        "/sys/fs/resctrl/schemata",
        "/sys/fs/resctrl/cpus_list",
        "/sys/fs/resctrl/*/schemata",
        "/sys/fs/resctrl/*/cpus_list",
    ):
        knobs.update(held(pattern))
    return {"groups": groups, "knobs": knobs, "interrupts": interrupts(), "scheduled": scheduled()}


def state(files):
    """What is there: interfaces, functions and their drivers, guests, files, and what a guest could leave behind."""
    functions = {}
    for path in glob.glob("/sys/bus/pci/devices/*"):
        driver = path + "/driver"
        one = {"driver": os.path.basename(os.readlink(driver)) if os.path.islink(driver) else None}
        for attribute in ("driver_override", "sriov_numvfs", "sriov_drivers_autoprobe"):
            one[attribute] = said(path + "/" + attribute)
        functions[os.path.basename(path)] = one
    with open("/proc/self/mounts") as mounts:
        mounted = sorted(line.split()[1] for line in mounts if "penstock-" in line)
    monitors = run("pgrep", "-fa", "lxc monitor").stdout.splitlines()
    return {
        "links": links(),
        "functions": functions,
        "guests": guests(),
        "files": {path: said(path) for path in files},
        "mounted": mounted,
        "realtime": realtime(),
        "monitors": sorted(line.split(" ", 1)[1] for line in monitors),
    }


def differences(wanted, found, at=""):
    if isinstance(wanted, dict) and isinstance(found, dict):
        keys = sorted(set(wanted) | set(found))
        return [line for key in keys for line in differences(wanted.get(key), found.get(key), at + "/" + key)]
    return [] if wanted == found else ["%s: %s, not %s" % (at, found, wanted)]


def one(model, moment, batches, files, before, wanted):
    """One moment: killed and taken back, killed and gone on from, and that taken back too."""
    began, wrong = time.monotonic(), []

    def expect(what, found, expected):
        if found != expected:
            wrong.append("%s: %s, not %s" % (what, found, expected))

    def penstock(*words):
        ended = run("penstock", *words)
        expect(" ".join(words), ended.returncode, 0)
        if ended.returncode:
            wrong.extend(ended.stderr.strip().splitlines()[-4:])

    def killed():
        expect("apply", killed_at(moment, batches, ["penstock", "apply", "--quiet", model]), -signal.SIGKILL)
        if "half-way" not in run("penstock", "status").stdout:
            wrong.append("status does not say that a run was cut off")

    def there(what, expected):
        wrong.extend("%s: %s" % (what, line) for line in differences(expected, state(files)))

    killed()
    penstock("undo", "--quiet")
    there("after undo", before)
    killed()
    penstock("apply", "--quiet", model)
    there("after apply", wanted)
    penstock("undo", "--quiet")
    there("after the undo of both", before)
    return {"moment": moment, "wrong": wrong, "seconds": round(time.monotonic() - began, 1)}


def kill(model, moments):
    plan = json.loads(run("penstock", "plan", "--json", model).stdout)
    steps = plan["steps"]
    files = sorted(step["action"]["write_file"]["path"] for step in steps if "write_file" in step["action"])
    before = state(files)
    applied = run("penstock", "apply", "--quiet", model)
    wanted = state(files)
    batches = begun_in(max(name for name in names(RUNS) if name.isdigit()))
    undone = run("penstock", "undo", "--quiet")
    head = {
        "steps": len(steps),
        "apply": applied.returncode,
        "undo": undone.returncode,
        "changed": len(differences(before, wanted)),
        "wrong": differences(before, state(files)),
    }
    print(json.dumps(head), flush=True)
    for moment in moments or ["done:%d" % step["id"] for step in steps]:
        print(json.dumps(one(model, moment, batches, files, before, wanted)), flush=True)


def torn():
    """Files of runs that are neither whole nor absent. A journal may end anywhere in its last line."""
    for path in sorted(glob.glob(RUNS + "/[0-9]*/*")):
        text = said_exactly(path)
        try:
            if path.endswith(".json"):
                json.loads(text)
            elif path.endswith("/journal"):
                for line in text[: text.rfind("\n") + 1].splitlines():
                    json.loads(line)
            elif path.endswith((".yaml", ".log")):
                pass
            elif not path.endswith((".part", ".new")):
                print(path, "is not known")
        except ValueError as error:
            print(path, error)


def said_exactly(path):
    with open(path) as file:
        return file.read()


def main():
    verb, more = sys.argv[1], sys.argv[2:]
    if verb == "kill":
        kill(more[0], more[1:])
    elif verb == "state":
        print(json.dumps(state(more), sort_keys=True))
    elif verb == "torn":
        torn()


if __name__ == "__main__":
    main()
