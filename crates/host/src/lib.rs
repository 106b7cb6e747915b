//! The only code of Penstock that touches the kernel.
//!
//! - [`files`] and [`process`]: files and processes, with errors that name the path and the command.
//! - [`boot`] and [`running`]: which run of the kernel this is, its clock, and processes known again later.
//! - [`complain`](complain!): a line on standard error, which ends nothing.
//! - [`cpio`]: archives that a kernel unpacks as its first file system.
//! - [`debian`] and [`packages`]: the mirror that this machine's apt uses; which package a program comes in.
//! - [`datagrams`]: UDP, and waiting until an exact time.
//! - [`follow`] and [`terminal`]: a file that another process writes to; the terminal that Penstock runs on.
//! - [`interrupt`] and [`job_control`]: signals that a person sends from a keyboard.
//! - [`device`]: which device a path names, also as a container sees it.
//! - [`record`]: a tree of what was read of a machine, to look at it again elsewhere.
//! - [`scratch`]: a file of our own in a directory that somebody hostile writes to.
//! - [`relay`] and [`secret`]: a connection carried to this machine's loopback; words that nobody guesses.
//! - [`root`]: the directory under which `/sys`, `/proc` and `/dev` are looked for; a fixture can stand there.
//! - [`place`]: what it is to be somewhere that commands run and interfaces live: this host, a container, a board.
//! - [`driver`] and [`probe`](mod@probe): which driver a PF has, and what it does when it is tried.
//! - [`netlink`] and [`pci`]: interfaces, VFs, embedded switches; drivers, VF counts, resets.
//! - [`nvme`]: an NVMe drive's VFs: their queues, interrupts and namespaces.
//! - [`bpf`]: programs at interfaces that netlink does not tell of.
//! - [`eswitch`]: the mode of an embedded switch over devlink, with a deadline.
//! - [`embedded`]: who keeps the attributes of VFs: the PF's driver, or an embedded switch of ours.
//! - [`scan`](mod@scan): the inventory of a machine, and what its life hangs on. [`threads`]: a VM as its QEMU process shows it.
//! - [`cgroup`], [`irq`], [`knob`], [`resctrl`], [`scheduling`]: what decides how late a thread wakes, changed and read back.
//! - [`managers`]: programs that configure interfaces as they appear, told to leave some alone.
//! - [`events`] and [`uevent`]: what the kernel tells by itself, of namespaces, devices and processes.
//! - [`namespace`] and [`frames`]: work in another network namespace; proof that frames pass between interfaces.
//!
//! The other crates reach the kernel through these and through nothing else (clippy's `disallowed-methods`).
#![allow(clippy::disallowed_methods)]

mod complaint;

pub mod accounts;
pub mod boot;
pub mod bpf;
mod cause;
pub mod cgroup;
pub mod cpio;
pub mod datagrams;
pub mod debian;
pub mod descriptors;
pub mod device;
pub mod driver;
pub mod embedded;
pub mod emulated;
pub mod eswitch;
pub mod events;
pub mod files;
pub mod follow;
pub mod frames;
pub mod here;
pub mod interface;
pub mod interrupt;
pub mod irq;
pub mod job_control;
pub mod kernel_log;
pub mod knob;
pub mod managers;
pub mod namespace;
pub mod netlink;
pub mod nvme;
pub mod packages;
pub mod pci;
pub mod place;
pub mod probe;
pub mod process;
pub mod record;
pub mod relay;
pub mod resctrl;
pub mod root;
pub mod running;
pub mod scan;
pub mod scheduling;
pub mod scratch;
pub mod secret;
pub mod tap;
pub mod terminal;
pub mod threads;
pub mod uevent;
pub mod vdpa;

pub use cause::chain;
pub use embedded::VfBackend;
pub use here::Here;
pub use interface::{InterfaceReport, Lower};
pub use namespace::NetworkNamespace;
pub use netlink::{Netlink, NetlinkError};
pub use pci::{PciError, PciFunction, interface_of, local_interface_of};
pub use place::{Place, PlaceError};
pub use process::{Command, Output, ProcessError};
pub use root::Root;
pub use scan::{Links, scan, scan_system};
