//! Eventfds of front ends (`VHOST_USER_SET_VRING_CALL`, `_KICK`, `_ERR`): told from other descriptors, and signalled without ever
//! waiting for who reads them.
//!
//! A front end keeps what it hands over: both sides have one open file description, with one set of flags. Setting `O_NONBLOCK` is
//! therefore no protection: the front end clears it, fills the counter, and `write(2)` waits for ever. What else there is:
//!
//! - `poll` before `write`: the counter may be filled in between.
//! - `pwritev2` with `RWF_NOWAIT`: an eventfd has no `write_iter`, and refuses it (`EOPNOTSUPP`, `fs/eventfd.c`).
//! - opening it anew for flags of our own: an anonymous inode cannot be opened (`ENXIO`).
//! - a thread for each ring that may block alone: a switch of threads for each wake-up, some 5 microseconds, and a thread that has to
//!   be left behind where it blocks.
//! - `eventfd_signal()`, as KVM and the kernel's own vhost do it: it never waits, and a counter that is full stays full. Programs reach it
//!   through asynchronous I/O: a request with `IOCB_FLAG_RESFD` (`io_submit(2)`) signals an eventfd when it completes.
//!
//! So a wake-up is a request to read nothing, which completes inside of its system call. It takes 0.9 microseconds where `write(2)`
//! takes 0.35 (300,000 of each on an AMD EPYC, busy); who polls its ring, as fast guests do, asks for none. The kernel also says with it
//! whether a descriptor is an eventfd at all, without asking whoever serves that descriptor.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::{
    errno::Errno,
    libc,
    sys::memfd::{MFdFlags, memfd_create},
    unistd::pipe2,
};

/// Requests that may have completed and were not reaped: so often there is a second system call.
const REQUESTS: libc::c_long = 128;
/// `IOCB_CMD_PREAD` of `include/uapi/linux/aio_abi.h`
const PREAD: u16 = 0;
/// `IOCB_FLAG_RESFD` of `include/uapi/linux/aio_abi.h`: the kernel signals an eventfd when the request is complete.
const SIGNALS: u32 = 1;

/// A request: `struct iocb` of `include/uapi/linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    /// In the order of a big-endian machine on such; both are 0 here.
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    signalled: u32,
}

/// A completion: `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Completion([u64; 4]);

/// The kernel's end of all wake-ups of a switch (`io_setup(2)`). Any thread may use it.
#[derive(Debug)]
pub struct Signals {
    context: libc::c_ulong,
    /// What is read, of which there is nothing.
    nothing: OwnedFd,
    /// What cannot be read: a request that fails behind the look at its eventfd.
    unreadable: OwnedFd,
    /// Whether a wake-up that failed was told of.
    told: AtomicBool,
}

impl Signals {
    /// Has the kernel make one.
    ///
    /// # Errors
    /// A kernel without asynchronous I/O (`CONFIG_AIO`), a machine on which others have all of it (`fs.aio-max-nr`), no descriptors.
    pub fn new() -> io::Result<Arc<Signals>> {
        let nothing = memfd_create("penstock-switch-nothing", MFdFlags::MFD_CLOEXEC)?;
        let (_, unreadable) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number, for which there is room.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, REQUESTS, &raw mut context) };
        Errno::result(made).map_err(|errno| {
            let why = match errno {
                Errno::ENOSYS => "this kernel has none (CONFIG_AIO)",
                Errno::EAGAIN => "the machine has no more of it (sysctl fs.aio-max-nr)",
                _ => "it could not be set up",
            };
            let text = format!(
                "guests are woken by asynchronous I/O, so that none of them can stop the switch: {why}: {errno}"
            );
            io::Error::new(io::Error::from(errno).kind(), text)
        })?;
        Ok(Arc::new(Signals { context, nothing, unreadable, told: AtomicBool::new(false) }))
    }

    /// Has the kernel read nothing from `file`, and then signal `event`.
    fn submit(&self, file: BorrowedFd<'_>, event: BorrowedFd<'_>) -> Result<(), Errno> {
        // Descriptors are not negative: what owns or borrows one has seen to it.
        let number = |fd: BorrowedFd<'_>| fd.as_raw_fd().cast_unsigned();
        let mut request = Request {
            opcode: PREAD,
            file: number(file),
            flags: SIGNALS,
            signalled: number(event),
            ..Request::default()
        };
        let mut all = [&raw mut request];
        // SAFETY: one request, which is as the kernel has it, and which it does not use any more when it returns: a read of nothing
        // completes at once.
        let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1_i64, all.as_mut_ptr()) };
        Errno::result(taken).map(|_| ())
    }

    /// Takes what has completed out of the kernel's way.
    fn reap(&self) {
        let mut completed = [Completion::default(); REQUESTS as usize];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let room = completed.as_mut_ptr();
        // SAFETY: there is room for as many as it is told; what they say is of no interest.
        unsafe { libc::syscall(libc::SYS_io_getevents, self.context, 0_i64, REQUESTS, room, &raw const now) };
    }

    /// Whether this is an eventfd. Whoever serves the descriptor is not asked.
    pub fn is_event(&self, fd: BorrowedFd<'_>) -> bool {
        for _ in 0..2 {
            match self.submit(self.unreadable.as_fd(), fd) {
                // It was looked at before what is to be read (`__io_submit_one`).
                Err(Errno::EBADF) => return true,
                Err(Errno::EAGAIN) => self.reap(),
                _ => return false,
            }
        }
        false
    }

    fn signal(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        match self.submit(self.nothing.as_fd(), fd) {
            Err(Errno::EAGAIN) => {
                self.reap();
                self.submit(self.nothing.as_fd(), fd)
            }
            outcome => outcome,
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nobody uses it any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// What a driver waits on for a word from the switch.
pub trait Notify: std::fmt::Debug + Send + Sync {
    /// Wakes who waits. Never waits itself.
    fn signal(&self);
}

/// An eventfd that a front end has given.
#[derive(Debug)]
pub struct Eventfd {
    fd: OwnedFd,
    signals: Arc<Signals>,
}

impl Eventfd {
    /// Takes a descriptor.
    ///
    /// # Errors
    /// The descriptor, when it is no eventfd.
    pub fn new(signals: &Arc<Signals>, fd: OwnedFd) -> Result<Eventfd, OwnedFd> {
        match signals.is_event(fd.as_fd()) {
            true => Ok(Eventfd { fd, signals: Arc::clone(signals) }),
            false => Err(fd),
        }
    }
}

impl Notify for Eventfd {
    /// Adds one to its counter and wakes who waits for that. A counter that is full has woken them already. Never waits, whatever
    /// flags the descriptor has.
    fn signal(&self) {
        if let Err(errno) = self.signals.signal(self.fd.as_fd())
            && !self.signals.told.swap(true, Ordering::Relaxed)
        {
            // The kernel has no memory, say. It is told once, since it may happen for each frame.
            complain!("a guest could not be woken: {errno}");
        }
    }
}

impl AsFd for Eventfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::net::UnixStream, time::Instant};

    use nix::{
        fcntl::{FcntlArg, OFlag, fcntl},
        sys::eventfd::{EfdFlags, EventFd},
    };

    use super::*;

    fn pair() -> (EventFd, Eventfd) {
        let front = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        let given = front.as_fd().try_clone_to_owned().unwrap();
        let signals = Signals::new().unwrap();
        (front, Eventfd::new(&signals, given).unwrap())
    }

    #[test]
    fn each_signal_counts_however_many_there_are() {
        let (front, ours) = pair();
        (0..10_000).for_each(|_| ours.signal());
        assert_eq!(front.read().unwrap(), 10_000);
    }

    #[test]
    fn a_full_counter_that_would_block_stays_full() {
        let (front, ours) = pair();
        front.write(u64::MAX - 1).unwrap();
        fcntl(front.as_fd(), FcntlArg::F_SETFL(OFlag::empty())).unwrap();
        (0..1_000).for_each(|_| ours.signal());
        assert!(front.read().unwrap() >= u64::MAX - 1);
    }

    #[test]
    fn only_an_eventfd_is_taken_for_one() {
        let signals = Signals::new().unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        let (end, _other) = pipe2(OFlag::empty()).unwrap();
        let others: [OwnedFd; 5] = [
            File::open("/dev/null").unwrap().into(),
            File::open("/proc/self/exe").unwrap().into(),
            memfd_create("guest", MFdFlags::empty()).unwrap(),
            socket.into(),
            end,
        ];
        for fd in others {
            assert!(!signals.is_event(fd.as_fd()), "{fd:?}");
        }
        let event = EventFd::from_flags(EfdFlags::EFD_SEMAPHORE).unwrap();
        assert!(signals.is_event(event.as_fd()));
        assert!(event.write(1).is_ok() && event.read() == Ok(1), "it was not signalled");
    }

    /// What a wake-up costs, for who changes it: `cargo test --release -p penstock-switch what_a_wake_up_costs -- --ignored --nocapture`.
    #[test]
    #[ignore = "it measures, and judges nothing"]
    fn what_a_wake_up_costs() {
        const COUNT: u32 = 300_000;
        let (front, ours) = pair();
        for _ in 0..5 {
            let began = Instant::now();
            (0..COUNT).for_each(|_| assert!(front.write(1).is_ok()));
            let written = began.elapsed() / COUNT;
            let began = Instant::now();
            (0..COUNT).for_each(|_| ours.signal());
            println!("write {written:?}, signal {:?}", began.elapsed() / COUNT);
        }
    }
}
