"""What is there on a board, read without Penstock's help: by `ip`, `virsh`, LXC's own programs and out of sysfs, procfs and /etc.

    reader.py [FILE...]

prints it as JSON, these files too. What cannot be equal before and after is not part of it: `STRIPPED` says what, and why.
"""
import ctypes
import fcntl
import glob
import hashlib
import json
import os
import re
import select
import struct
import sys
import time

from tracer import run, said

GUESTS = "/run/penstock/guests"

# What is read and then left out, each with its reason.
STRIPPED = {
    "link ifindex, ifname as key, link_index": "the kernel numbers interfaces anew each time that they are made",
    "numbers of virtio devices": "given anew with each bind; compared by the PCI function below",
    "the name that the kernel gave a VF's interface (`ethN`)": "VFs are numbered as they are bound, several at a time; compared by the PCI address",
    "link operstate, LOWER_UP, NO-CARRIER": "follow the carrier, some time after the change that is compared",
    "link qdisc": "`noop` until an interface is brought up for the first time, its default discipline ever after",
    "link tso_max_size, tso_max_segs": "what a device can do; a bridge takes them from its ports, and keeps others without any",
    "link stats, linkinfo's and slaves' timers": "counters and times",
    "addresses of scope link": "the kernel makes them when a carrier comes, and takes them away with it",
    "lxc.net.N.link in a container's configuration": "what an interface is called before it is the guest's is the kernel's choice",
    "lxc.pivot, and controllers in the root group": "LXC makes and switches them on with its first container, and leaves them",
    "CPUs of a control group that has none of its own": "as those of a group without the controller cpuset, which LXC switches on",
    "the group `machine` without CPUs of its own": "libvirt makes it for its first VM, and leaves it",
    "numbers of interrupts": "given anew with each bind; compared by name at the controller",
    "numbers of processes": "given anew; compared by name, scheduling and place",
    "domain id, vnet names, labels and paths of the monitor and of channels": "libvirt numbers domains anew with each start",
    "settings of ports of an embedded switch while there is no VF": "it keeps them for the next VFs, where a NIC forgets them",
    "/etc/subuid, /etc/subgid": "the range of ids that containers enter is the host's, made with the first container, and stays",
    "/etc/mtab, /etc/machine-id": "a link to the kernel's table; made at boot",
    "/var/lib/penstock, /run/penstock/lock": "Penstock's own records, of which `undo --list` tells",
}

LINK = ("ifindex", "ifname", "link_index", "operstate", "qdisc", "stats", "stats64", "flags", "link", "tso_max_size", "tso_max_segs")


# Digests of files that are as they were: nobody can set the time of a file's last change (ctime).
DIGESTS = {}


def digest(path):
    try:
        at = os.stat(path)
        version = (path, at.st_dev, at.st_ino, at.st_size, at.st_ctime_ns)
        if version not in DIGESTS:
            with open(path, "rb") as file:
                DIGESTS[version] = hashlib.sha256(file.read()).hexdigest()[:16]
        return DIGESTS[version]
    except OSError as error:
        return error.strerror


def numbered():
    """The interfaces of VFs that have the kernel's names, and what they are called here."""
    found = {}
    for path in glob.glob("/sys/class/net/eth[0-9]*"):
        if os.path.exists(path + "/device/physfn"):
            found[os.path.basename(path)] = "VF " + os.path.basename(os.path.realpath(path + "/device"))
    return found


def links(*where, names={}):
    """The interfaces of a network namespace, those in `names` as they are called there."""
    found = {}
    for link in json.loads(run(*where, "ip", "-d", "-j", "link").stdout or "[]"):
        one = {key: value for key, value in link.items() if key not in LINK}
        one["flags"] = sorted(set(link["flags"]) - {"LOWER_UP", "NO-CARRIER"})
        one["kind"] = one.pop("linkinfo", {}).get("info_kind")
        if one.get("parentbus") == "virtio":
            # The kernel numbers virtio devices anew with each bind; the PCI function below stays.
            device = os.path.realpath("/sys/bus/virtio/devices/%s" % one["parentdev"])
            one["parentdev"] = os.path.basename(os.path.dirname(device))
        found[names.get(link["ifname"], link["ifname"])] = one
    for link in json.loads(run(*where, "ip", "-j", "address").stdout or "[]"):
        addresses = (address for address in link.get("addr_info", []) if address.get("scope") != "link")
        found[names.get(link["ifname"], link["ifname"])]["addresses"] = sorted(
            "%s/%d" % (address["local"], address["prefixlen"]) for address in addresses
        )
    return found


def routes(names):
    """The host's routes, with the interfaces in `names` as they are called there."""
    kept = ("dst", "gateway", "dev", "table", "prefsrc", "metric")
    found = []
    for family in ("-4", "-6"):
        for route in json.loads(run("ip", family, "-j", "route", "show", "table", "all").stdout or "[]"):
            if "dev" in route:
                route["dev"] = names.get(route["dev"], route["dev"])
            if not str(route["dst"]).startswith(("fe80:", "ff00:", "multicast")):
                found.append(" ".join("%s=%s" % (key, route[key]) for key in kept if key in route))
    return sorted(found)


def containers():
    found = {}
    for directory in sorted(glob.glob(GUESTS + "/penstock-*")):
        name = os.path.basename(directory)
        lines = (line for line in (said(directory + "/config") or "").splitlines() if ".link = " not in line)
        one = {"config": hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]}
        pid = run("lxc-info", "-P", GUESTS, "-n", name, "-pH").stdout.strip()
        one["running"] = bool(pid)
        if pid:
            one["links"] = links("nsenter", "-t", pid, "-n")
        found[name] = one
    found["others"] = run("lxc-ls").stdout.split()
    return found


def machines():
    """libvirt's domains, where libvirt runs."""
    if not os.path.exists("/run/libvirt/libvirt-sock"):
        return None
    found = {}
    for name in run("virsh", "-q", "list", "--all", "--name").stdout.split():
        xml = re.sub(r"(/channel/)\d+-", r"\1", run("virsh", "-q", "dumpxml", "--inactive", name).stdout)
        found[name] = {
            "state": run("virsh", "-q", "domstate", name).stdout.strip(),
            "xml": hashlib.sha256(xml.encode()).hexdigest()[:16],
            "devices": sorted(list(address) for address in re.findall(r"<address domain='(\w+)' bus='(\w+)' slot='(\w+)' function='(\w+)'/>\n *</source>", xml)),
        }
    found["processes"] = len(run("pgrep", "-x", "qemu-system-x86").stdout.split())
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


def groups():
    """The control groups, and the CPUs of each."""
    found = {}
    root = "/sys/fs/cgroup"
    for path, _, _ in os.walk(root):
        if path == root + "/lxc.pivot":
            continue
        # libvirt's groups are named after the number of the domain: `machine/qemu-3-penstock-rt.libvirt-qemu`.
        name = re.sub(r"(/machine/qemu-)\d+-", r"\1", path)
        one = {file: said(path + "/" + file) for file in ("cpuset.cpus", "cpuset.cpus.exclusive", "cpuset.cpus.partition")}
        if list(one.values()) == ["", "", "member"]:
            one = dict.fromkeys(one)
        found[name] = {"cgroup.subtree_control": said(path + "/cgroup.subtree_control"), **one}
    # What a run has left there counts: CPUs that it claimed, say.
    of_libvirt = found.get(root + "/machine")
    if of_libvirt and not any(value for file, value in of_libvirt.items() if file.startswith("cpuset")):
        del found[root + "/machine"]
    if set((found[root]["cgroup.subtree_control"] or "").split()) - {"cpuset"}:
        found[root]["cgroup.subtree_control"] = ""
    return found


def knobs():
    """What decides how late threads wake, and how much memory there is in large pages."""
    found = {}
    for pattern in (
        "/proc/irq/default_smp_affinity",
        "/proc/sys/kernel/sched_rt_*_us",
        "/proc/sys/vm/nr_hugepages*",
        "/sys/kernel/mm/hugepages/*/nr_hugepages",
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
        found.update(held(pattern))
    return found


def functions():
    found = {}
    for path in glob.glob("/sys/bus/pci/devices/*"):
        one = {}
        for link in ("driver", "iommu_group"):
            one[link] = os.path.basename(os.readlink(path + "/" + link)) if os.path.islink(path + "/" + link) else None
        # A group is numbered anew with its VF.
        one["iommu_group"] = one["iommu_group"] is not None
        for attribute in ("driver_override", "sriov_numvfs", "sriov_drivers_autoprobe", "enable"):
            one[attribute] = said(path + "/" + attribute)
        found[os.path.basename(path)] = one
    return found


# `NVME_IOCTL_ADMIN_CMD` of linux/nvme_ioctl.h, and the lists of Identify (NVMe 2.0, 5.17.2) that are read by it.
ADMIN = 0xC0484E41
ALLOCATED, ATTACHED, SECONDARY = 0x10, 0x12, 0x15


def identified(file, which, namespace=0):
    """What a drive answers to Identify, or None where it has no such list."""
    answer = ctypes.create_string_buffer(4096)
    words = struct.pack("=BBHIIIQQIIIIIIIIII", 6, 0, 0, namespace, 0, 0, 0, ctypes.addressof(answer), 0, 4096, which, 0, 0, 0, 0, 0, 10000, 0)
    try:
        return answer.raw if fcntl.ioctl(file, ADMIN, bytearray(words)) == 0 else None
    except OSError:
        return None


def drives():
    """The drives that have VFs: the controller of each VF with its queues, and who has which namespace."""
    found = {}
    for path in glob.glob("/sys/class/nvme/nvme*"):
        if not os.path.exists(path + "/device/sriov_totalvfs"):
            continue
        with open("/dev/" + os.path.basename(path), "rb") as file:
            secondary, allocated = identified(file, SECONDARY), identified(file, ALLOCATED)
            one = {"controllers": None, "namespaces": {}}
            if secondary is not None:
                # Entries of 32 octets: its number, that of the primary, its state, three of nothing, its VF, and what queues and interrupts it has.
                entries = (struct.unpack_from("<HHB3xHHH", secondary, 32 + 32 * entry) for entry in range(secondary[0]))
                one["controllers"] = {str(vf): {"state": at, "queues": queues, "interrupts": vectors} for _, _, at, vf, queues, vectors in entries}
            for namespace in struct.unpack("<1024I", allocated or bytes(4096)):
                if namespace:
                    holders = identified(file, ATTACHED, namespace)
                    one["namespaces"][str(namespace)] = holders and list(struct.unpack_from("<%dH" % struct.unpack_from("<H", holders)[0], holders, 2))
        found[os.path.basename(os.path.realpath(path + "/device"))] = one
    return found


def ask(port):
    """What an embedded switch at the other end of a serial port has (docs/switch.md)."""
    line, deadline = b"", time.monotonic() + 20
    try:
        file = os.open(port, os.O_RDWR | os.O_NONBLOCK)
    except OSError as error:
        return error.strerror
    try:
        os.write(file, b'\n{"version": 1, "id": 1, "do": "get"}\n')
        while time.monotonic() < deadline:
            select.select([file], [], [], 1)
            try:
                read = os.read(file, 1 << 16)
            except BlockingIOError:
                continue
            if not read:
                # The other end is not there at the moment.
                time.sleep(0.02)
            line += read
            for whole in line.split(b"\n")[:-1]:
                try:
                    answer = json.loads(whole)
                except ValueError:
                    # Half of an answer to whoever was killed.
                    continue
                if answer.get("id") == 1 and "ok" in answer:
                    return answer["ok"]
            line = line.rpartition(b"\n")[2]
        return "no answer"
    finally:
        os.close(file)


def vdpa():
    """Devices whose other end is a process here, with their drivers, and the embedded switches that run here."""
    devices = {}
    for path in glob.glob("/sys/bus/vdpa/devices/*"):
        driver = path + "/driver"
        devices[os.path.basename(path)] = os.path.basename(os.readlink(driver)) if os.path.islink(driver) else None
    lines = (said("/proc/%s/cmdline" % process) for process in run("pgrep", "-x", "penstock-switch").stdout.split())
    return {"devices": devices, "switches": sorted(" ".join((line or "").split("\0")) for line in lines)}


def switches(has_vfs):
    """The embedded switches of PFs, and what is set at their ports."""
    found = {}
    for path in glob.glob("/sys/class/virtio-ports/*/name"):
        name = said(path) or ""
        if name.startswith("org.penstock.switch."):
            told = ask("/dev/" + path.split("/")[-2])
            if isinstance(told, dict):
                ports = {port: one["settings"] for port, one in told["ports"].items()} if has_vfs else None
                told = {"loopback": told["loopback"], "ports": ports}
            found[name] = told
    return found


def settings():
    """Every file below /etc, by its digest, and what of LXC's and libvirt's lies on the disk."""
    found = {}
    for root in ("/etc", "/var/lib/lxc", "/var/lib/libvirt/qemu", "/run/penstock/guests"):
        for directory, _, files in os.walk(root):
            for name in files:
                path = os.path.join(directory, name)
                if path.removesuffix("-") in ("/etc/mtab", "/etc/machine-id", "/etc/subuid", "/etc/subgid"):
                    continue
                # What a guest's directory holds is compared as its configuration; that nothing stays is compared here.
                found[path] = digest(path) if root == "/etc" else None
    return found


def state(files):
    """What is there: interfaces, functions and their drivers, guests, files, and what a guest could leave behind."""
    with open("/proc/self/mounts") as mounts:
        mounted = sorted(line.split()[1] for line in mounts if "penstock-" in line)
    monitors = run("pgrep", "-fa", "lxc monitor").stdout.splitlines()
    found = functions()
    has_vfs = any(one["sriov_numvfs"] not in (None, "0") for one in found.values())
    names = numbered()
    return {
        "links": links(names=names),
        "routes": routes(names),
        "namespaces": run("ip", "netns").stdout.split(),
        "functions": found,
        "drives": drives(),
        "vdpa": vdpa(),
        "switches": switches(has_vfs),
        "guests": containers(),
        "machines": machines(),
        "settings": settings(),
        "files": {path: said(path) for path in files},
        "mounted": mounted,
        "groups": groups(),
        "knobs": knobs(),
        "interrupts": interrupts(),
        "scheduled": scheduled(),
        "monitors": sorted(line.split(" ", 1)[1] for line in monitors),
    }


def differences(wanted, found, at=""):
    if isinstance(wanted, dict) and isinstance(found, dict):
        keys = sorted(set(wanted) | set(found))
        return [line for key in keys for line in differences(wanted.get(key), found.get(key), at + "/" + key)]
    return [] if wanted == found else ["%s: %s, not %s" % (at, found, wanted)]


if __name__ == "__main__":
    print(json.dumps(state(sys.argv[1:]), sort_keys=True))
