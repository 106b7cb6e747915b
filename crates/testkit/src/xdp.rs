//! XDP programs for interfaces of a test's own. No program of the install step loads one that was not compiled before.

use penstock_host::{Command, ProcessError};

use crate::needs::{self, Lack};

/// Loads a program that lets everything pass (bpf(2), `BPF_PROG_LOAD`) and attaches it in front of the network stack (`IFLA_XDP`).
const ATTACH: &str = r#"import ctypes, os, socket, struct, sys
call = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
kernel = ctypes.CDLL(None, use_errno=True)
code = ctypes.create_string_buffer(struct.pack("<BBhiBBhi", 0xb7, 0, 0, 2, 0x95, 0, 0, 0))
license = ctypes.create_string_buffer(b"GPL")
asked = struct.pack("<IIQQ96x", 6, 2, ctypes.addressof(code), ctypes.addressof(license))
program = kernel.syscall(call, 5, ctypes.create_string_buffer(asked), len(asked))
if program < 0:
    sys.exit("BPF_PROG_LOAD: " + os.strerror(ctypes.get_errno()))
xdp = struct.pack("<HHiHHI", 8, 1, program, 8, 3, 2)
link = struct.pack("<BBHiII", 0, 0, 0, socket.if_nametoindex(sys.argv[1]), 0, 0)
body = link + struct.pack("<HH", 4 + len(xdp), 0x8000 | 43) + xdp
kernel_socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
kernel_socket.send(struct.pack("<IHHII", 16 + len(body), 19, 5, 1, 0) + body)
answer = struct.unpack("<i", kernel_socket.recv(4096)[16:20])[0]
sys.exit("RTM_SETLINK: " + os.strerror(-answer) if answer else 0)"#;

/// Why no XDP program can be attached here, if so.
pub fn lacking() -> Option<Lack> {
    let attached = Command::new("unshare").args(["--net", "python3", "-c", ATTACH, "lo"]);
    needs::programs(&["python3", "unshare", "nsenter"]).or_else(|| needs::refused(attached))
}

/// Attaches a program to the interface `name` in the network namespace of a process.
///
/// # Errors
///
/// [`ProcessError`] when there is no python3, or the kernel refuses the program or its place: the error has its words.
pub fn attach(process: u32, name: &str) -> Result<(), ProcessError> {
    let namespace = format!("--net=/proc/{process}/ns/net");
    let words = [&namespace, "python3", "-c", ATTACH, name];
    Command::new("nsenter").args(words).succeed().map(drop)
}
