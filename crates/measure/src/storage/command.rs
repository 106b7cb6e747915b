//! fio's command lines. Pure.

use std::{fmt, time::Duration};

use penstock_host::Command;
use penstock_model::measurement::{Mix, Pattern, Storage};

/// fio measures no shorter than this.
pub const SHORTEST: Duration = Duration::from_secs(1);

/// How long fio may take beside what it is asked to measure, on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Laying a file out slower than this, in bytes a second, is given up.
const SLOWEST: u64 = 1 << 20;

/// How fio hands operations to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// io_uring: Linux 5.1, where it is not forbidden.
    IoUring,
    /// Linux' older asynchronous I/O, which is asynchronous with direct I/O only.
    Libaio,
    /// One `pread` or `pwrite` after the other.
    Psync,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Engine::IoUring => "io_uring",
            Engine::Libaio => "libaio",
            Engine::Psync => "psync",
        })
    }
}

/// How a target is read and written: the same at both ends, or they cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoMethod {
    /// How operations reach the kernel: fio's `ioengine`.
    pub engine: Engine,
    /// Whether past the page cache (`O_DIRECT`).
    pub direct: bool,
}

impl IoMethod {
    /// All, the best first.
    pub const ALL: [IoMethod; 5] = [
        IoMethod { engine: Engine::IoUring, direct: true },
        IoMethod { engine: Engine::Libaio, direct: true },
        IoMethod { engine: Engine::Psync, direct: true },
        IoMethod { engine: Engine::IoUring, direct: false },
        IoMethod { engine: Engine::Psync, direct: false },
    ];

    /// Whether several operations of one job can be in flight at once.
    pub fn goes_deep(&self) -> bool {
        self.engine != Engine::Psync
    }
}

/// One sample. `size` bytes of the file or device are read or written, again and again, for `dwell` or [`SHORTEST`].
pub fn sample(way: IoMethod, file: &str, storage: &Storage, size: u64, dwell: Duration) -> Command {
    let rw = match (storage.pattern, storage.mix) {
        (Pattern::Sequential, Mix::Read) => "read",
        (Pattern::Sequential, Mix::Write) => "write",
        (Pattern::Sequential, Mix::Mixed) => "rw",
        (Pattern::Random, Mix::Read) => "randread",
        (Pattern::Random, Mix::Write) => "randwrite",
        (Pattern::Random, Mix::Mixed) => "randrw",
    };
    let dwell = dwell.max(SHORTEST);
    // Jobs that read the same blocks in order would find them in somebody's cache: each has a part of its own.
    let block = u64::from(storage.block.max(1));
    let part = match size / u64::from(storage.jobs.max(1)) / block * block {
        0 => size,
        part => part,
    };
    let command = base(way, file)
        .arg(format!("--rw={rw}"))
        .arg(format!("--bs={}", storage.block))
        .arg(format!("--iodepth={}", storage.depth))
        .arg(format!("--numjobs={}", storage.jobs))
        .arg("--group_reporting")
        .arg(format!("--size={part}"))
        .arg(format!("--offset_increment={}", if part == size { 0 } else { part }))
        .arg("--time_based")
        .arg(format!("--runtime={}ms", dwell.as_millis()))
        .args(["--output-format=json+", "--lat_percentiles=1", "--clat_percentiles=0"])
        .arg("--percentile_list=50:90:99:99.9")
        .deadline(dwell + TIMEOUT);
    match storage.mix {
        Mix::Read => command.arg("--readonly"),
        // What a sample wrote is on the medium before the next one begins.
        Mix::Write | Mix::Mixed => command.arg("--end_fsync=1"),
    }
}

/// Fills a file, so that what is read was written once.
pub fn lay_out(file: &str, size: u64) -> Command {
    base(IoMethod { engine: Engine::Psync, direct: false }, file)
        .args(["--rw=write", "--bs=131072", "--end_fsync=1", "--output-format=json"])
        .arg(format!("--size={size}"))
        .deadline(TIMEOUT + Duration::from_secs(size / SLOWEST))
}

/// Reads one block, to see whether it can be read this way.
pub fn trial(way: IoMethod, file: &str, block: u32) -> Command {
    base(way, file)
        .args(["--rw=read", "--number_ios=1", "--readonly", "--output-format=json"])
        .args([format!("--bs={block}"), format!("--size={block}")])
        .deadline(TIMEOUT)
}

fn base(way: IoMethod, file: &str) -> Command {
    Command::new("fio")
        .arg("--name=penstock")
        // A colon would begin the next file's name.
        .arg(format!("--filename={}", file.replace('\\', "\\\\").replace(':', "\\:")))
        .arg(format!("--ioengine={}", way.engine))
        .arg(format!("--direct={}", u8::from(way.direct)))
        .arg("--invalidate=1")
        // fio's own guard beside Penstock's.
        .arg("--allow_mounted_write=0")
}
