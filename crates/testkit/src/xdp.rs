//! XDP and tcx programs for interfaces of a test's own. No program of the install step loads one that was not compiled before.

use penstock_host::{Command, ProcessError};

use crate::needs::{self, Lack};

/// Loads a program that lets everything pass (bpf(2), `BPF_PROG_LOAD`): its sort, and the answer that says so.
macro_rules! loading {
    ($sort:literal, $passes:literal, $then:literal) => {
        concat!(
            r#"import ctypes, os, socket, struct, sys
call = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
kernel = ctypes.CDLL(None, use_errno=True)
code = ctypes.create_string_buffer(struct.pack("<BBhiBBhi", 0xb7, 0, 0, "#,
            $passes,
            r#", 0x95, 0, 0, 0))
license = ctypes.create_string_buffer(b"GPL")
asked = struct.pack("<IIQQ96x", "#,
            $sort,
            r#", 2, ctypes.addressof(code), ctypes.addressof(license))
program = kernel.syscall(call, 5, ctypes.create_string_buffer(asked), len(asked))
if program < 0:
    sys.exit("BPF_PROG_LOAD: " + os.strerror(ctypes.get_errno()))
index = socket.if_nametoindex(sys.argv[1])
"#,
            $then
        )
    };
}

/// Attaches it in front of the network stack (`IFLA_XDP`).
const XDP: &str = loading!(
    "6",
    "2",
    r#"xdp = struct.pack("<HHiHHI", 8, 1, program, 8, 3, 2)
link = struct.pack("<BBHiII", 0, 0, 0, index, 0, 0)
body = link + struct.pack("<HH", 4 + len(xdp), 0x8000 | 43) + xdp
kernel_socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
kernel_socket.send(struct.pack("<IHHII", 16 + len(body), 19, 5, 1, 0) + body)
answer = struct.unpack("<i", kernel_socket.recv(4096)[16:20])[0]
sys.exit("RTM_SETLINK: " + os.strerror(-answer) if answer else 0)"#
);

/// Attaches it for the packets that come in, or go out (`BPF_PROG_ATTACH`).
const TCX: &str = loading!(
    "3",
    "-1",
    r#"place = {"in": 46, "out": 47}[sys.argv[2]]
asked = ctypes.create_string_buffer(struct.pack("<6IQ", index, program, place, 0, 0, 0, 0), 32)
if kernel.syscall(call, 8, asked, 32) < 0:
    sys.exit("BPF_PROG_ATTACH: " + os.strerror(ctypes.get_errno()))"#
);

/// Why no XDP program can be attached here, if so.
pub fn lacking() -> Option<Lack> {
    lacks(&["python3", "-c", XDP, "lo"])
}

/// Why no tcx program can be attached here, if so: that takes Linux 6.6.
pub fn tcx_lacking() -> Option<Lack> {
    lacks(&["python3", "-c", TCX, "lo", "in"])
}

fn lacks(words: &[&str]) -> Option<Lack> {
    let attached = Command::new("unshare").arg("--net").args(words);
    needs::programs(&["python3", "unshare", "nsenter"]).or_else(|| needs::refused(attached))
}

/// Attaches a program to the interface `name` in the network namespace of a process.
///
/// # Errors
///
/// [`ProcessError`] when there is no python3, or the kernel refuses the program or its place: the error has its words.
pub fn attach(process: u32, name: &str) -> Result<(), ProcessError> {
    attached(process, &["python3", "-c", XDP, name])
}

/// The same of a tcx program, for the packets that come `in` or go `out`.
///
/// # Errors
///
/// As [`attach`].
pub fn attach_tcx(process: u32, name: &str, packets: &str) -> Result<(), ProcessError> {
    attached(process, &["python3", "-c", TCX, name, packets])
}

fn attached(process: u32, words: &[&str]) -> Result<(), ProcessError> {
    let namespace = format!("--net=/proc/{process}/ns/net");
    Command::new("nsenter").arg(namespace).args(words).succeed().map(drop)
}
