//! What keeps the attributes of a PF's VFs: its driver, which is asked over netlink, or an embedded switch of ours outside of the
//! machine, to which a serial line leads.
//!
//! A virtio PF has no call for its VFs' attributes (`drivers/net/virtio_net.c`). Where its functions are ports of an embedded
//! switch (`docs/switch.md`), as on a board, the machine has a virtio serial port named `org.penstock.switch.` and the
//! permanent MAC address of the PF; what goes through it is the switch's control protocol. Its ports are named as a model
//! names functions: `NET0`, `NET0#3`.

pub mod control;
mod line;
mod wire;

use std::{path::PathBuf, time::Duration};

use nix::errno::Errno;
use penstock_model::{
    Mac, VfAttribute, VfIndex,
    inventory::{SwitchMode, VfCounters, VfState},
};

pub use self::control::{InsideReport, PortReport};
use self::line::Line;
pub use self::wire::{Answer, Request, State, Why};
use crate::{Netlink, NetlinkError, Root, files};

/// Where the kernel lists serial ports of virtio.
const PORTS: &str = "/sys/class/virtio-ports";
/// What the name of a line's serial port begins with; the address of the PF follows.
pub const LINE_NAME: &str = "org.penstock.switch.";

/// The lines to embedded switches: the text of the address of each one's PF, and its device file. Also a machine with a QEMU guest
/// agent has ports, and none of these.
fn lines(root: &Root) -> Vec<(String, PathBuf)> {
    let ports = files::list(root.path(PORTS)).unwrap_or_default();
    let line = |port: String| {
        let name = files::read_to_string(root.path(format!("{PORTS}/{port}/name"))).ok()?;
        Some((name.trim().strip_prefix(LINE_NAME)?.to_owned(), root.path(format!("/dev/{port}"))))
    };
    ports.into_iter().filter_map(line).collect()
}

/// Who is asked for the attributes of the VFs of one PF.
#[derive(Debug)]
pub struct VfBackend<'a> {
    netlink: &'a mut Netlink,
    /// The PF's interface.
    index: u32,
    /// The line to its embedded switch.
    line: Option<PathBuf>,
}

impl<'a> VfBackend<'a> {
    /// Who keeps the VFs of the PF whose interface has this index in the namespace of `netlink`.
    ///
    /// # Errors
    ///
    /// When a machine that has lines to embedded switches does not list its interfaces.
    pub fn of(root: &Root, netlink: &'a mut Netlink, index: u32) -> Result<VfBackend<'a>, NetlinkError> {
        let lines = lines(root);
        let mut line = None;
        if !lines.is_empty() {
            let reports = netlink.interfaces()?;
            let pf = reports.iter().find(|report| report.index == index);
            let mac = pf.map(|report| report.permanent_mac.unwrap_or(report.interface.mac));
            let mac = mac.unwrap_or(Mac::new([0; 6])).to_string();
            line = lines.into_iter().find_map(|(pf, path)| (pf == mac).then_some(path));
        }
        Ok(VfBackend { netlink, index, line })
    }

    /// What is kept for the VFs, in index order; empty when nothing is. An embedded switch also tells of VFs that could be.
    ///
    /// # Errors
    ///
    /// When the kernel, or the switch, does not answer.
    pub fn vfs(&mut self) -> Result<Vec<(VfIndex, VfState)>, NetlinkError> {
        match &self.line {
            None => self.netlink.vfs(self.index),
            Some(line) => Ok(Line::open(line, "list the VFs")?.state()?.vfs()),
        }
    }

    /// The same, where an embedded switch has `timeout` for its line to become free, and as long again to answer.
    ///
    /// # Errors
    ///
    /// As of [`VfBackend::vfs`].
    pub fn vfs_within(&mut self, timeout: Duration) -> Result<Vec<(VfIndex, VfState)>, NetlinkError> {
        match &self.line {
            None => self.netlink.vfs(self.index),
            Some(line) => Ok(Line::open_within(line, "list the VFs", timeout)?.state()?.vfs()),
        }
    }

    /// What was counted for the VFs, in index order; empty when nothing was. An embedded switch also tells of VFs that could be. What a
    /// driver that counts nothing comes to is said at [`Netlink::vf_counters`].
    ///
    /// # Errors
    ///
    /// As of [`VfBackend::vfs`].
    pub fn counters(&mut self) -> Result<Vec<(VfIndex, VfCounters)>, NetlinkError> {
        match &self.line {
            None => self.netlink.vf_counters(self.index),
            Some(line) => Ok(Line::open(line, "read the counters of the VFs")?.state()?.counters()),
        }
    }

    /// Whether an embedded switch of ours keeps them.
    pub fn is_switch(&self) -> bool {
        self.line.is_some()
    }

    /// Sets attributes of VFs, in this order. After an error it is not known which of them it was.
    ///
    /// # Errors
    ///
    /// When one of them cannot be set, or is refused.
    pub fn set(&mut self, wanted: &[(VfIndex, VfAttribute)]) -> Result<(), NetlinkError> {
        let Some(line) = &self.line else {
            return match wanted {
                [(vf, attribute)] => self.netlink.set_vf(self.index, *vf, attribute),
                _ => self.netlink.set_vfs(self.index, wanted),
            };
        };
        let mut line = Line::open(line, "set attributes of VFs")?;
        let state = line.state()?;
        for of_one in wanted.chunk_by(|(a, _), (b, _)| a == b) {
            let Some((vf, _)) = of_one.first() else { continue };
            let all: Vec<String> = of_one.iter().map(|(_, attribute)| attribute.to_string()).collect();
            let attempt = format!("set {} of VF {vf} at its embedded switch", all.join(", "));
            let port = state.port(*vf).ok_or_else(|| refused(&attempt, "it has no port for that VF"))?;
            let attributes = state.attributes(&port, of_one.iter().map(|(_, attribute)| attribute));
            line.ask(&attempt, Request::Set { port, attributes })?;
        }
        Ok(())
    }

    /// The mode of the embedded switch.
    ///
    /// # Errors
    ///
    /// As of [`VfBackend::vfs`].
    pub fn mode(&mut self) -> Result<SwitchMode, NetlinkError> {
        match &self.line {
            None => self.netlink.switch_mode(self.index),
            Some(line) => Ok(Line::open(line, "read the mode")?.state()?.mode()),
        }
    }

    /// Sets the mode of the embedded switch: VEB or VEPA.
    ///
    /// # Errors
    ///
    /// As of [`VfBackend::set`].
    pub fn set_mode(&mut self, mode: SwitchMode) -> Result<(), NetlinkError> {
        match &self.line {
            None => self.netlink.set_switch_mode(self.index, mode),
            Some(line) => {
                let attempt = format!("set the embedded switch to {mode} mode");
                let on = mode == SwitchMode::Veb;
                if !on && mode != SwitchMode::Vepa {
                    let detail = Some("only VEB and VEPA are modes that it has".to_owned());
                    return Err(NetlinkError::Unsupported { attempt, detail });
                }
                Line::open(line, &attempt)?.ask(&attempt, Request::Loopback { on }).map(drop)
            }
        }
    }
}

fn refused(attempt: &str, why: &str) -> NetlinkError {
    NetlinkError::Refused { attempt: attempt.to_owned(), errno: Errno::EINVAL, detail: Some(why.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_known_by_the_name_of_its_port() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(lines(&root), []);
        for (port, name) in [
            ("vport0p1", "org.qemu.guest_agent.0\n"),
            ("vport2p1", "org.penstock.switch.02:00:00:00:00:01\n"),
        ] {
            let port = directory.path().join("sys/class/virtio-ports").join(port);
            files::create_dir_all(&port).unwrap();
            files::write_atomic(port.join("name"), name).unwrap();
        }
        let path = directory.path().join("dev/vport2p1");
        assert_eq!(lines(&root), [("02:00:00:00:00:01".to_owned(), path)]);
    }
}
