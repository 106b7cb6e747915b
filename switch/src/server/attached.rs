//! What a port leads to: a guest's socket, a wire, or a vDPA device.

use std::{path::Path, time::Instant};

use super::{link::Links, outside::Outside, port::Listening, vduse::Vduse};
use crate::{
    config::{Cable, PortBackend},
    settings::{LinkState, Settings},
    socket::Access,
    table::PortId,
};

/// What keeps a port connected.
#[derive(Debug)]
pub(super) enum Attached {
    Guest(Listening),
    Outside(Outside),
    Vduse(Vduse),
}

impl Attached {
    /// Opens what a port leads to.
    ///
    /// # Errors
    ///
    /// As [`Listening::open`], [`Vduse::open`] and [`Outside::open`].
    pub fn open(
        backend: &PortBackend,
        id: PortId,
        settings: &Settings,
        access: Access,
    ) -> std::io::Result<Attached> {
        match backend {
            PortBackend::Guest(path) => Listening::open(path, id, access).map(Attached::Guest),
            PortBackend::Vduse(device) => Vduse::open(device, id).map(Attached::Vduse),
            outside => {
                Outside::open(outside, id, settings, is_enabled(settings), access).map(Attached::Outside)
            }
        }
    }

    /// Its socket, if it has one to which others come.
    pub fn socket(&self) -> Option<&Path> {
        match self {
            Attached::Guest(listening) => Some(listening.path()),
            Attached::Outside(outside) => match outside.backend() {
                PortBackend::Cable(Cable::Listen(path) | Cable::Qemu(path)) => Some(path),
                _ => None,
            },
            Attached::Vduse(_) => None,
        }
    }

    /// Has it served from now on.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn serve(&mut self, name: &str, settings: &Settings, links: Links) -> std::io::Result<()> {
        match self {
            Attached::Guest(listening) => listening.serve(name, links),
            Attached::Outside(outside) => outside.serve(name, settings.mtu, links),
            Attached::Vduse(vduse) => vduse.serve(name, links),
        }
    }

    pub fn id(&self) -> PortId {
        match self {
            Attached::Guest(listening) => listening.id(),
            Attached::Outside(outside) => outside.id(),
            Attached::Vduse(vduse) => vduse.id(),
        }
    }

    pub fn is_at(&self, backend: &PortBackend) -> bool {
        match (self, backend) {
            (Attached::Guest(listening), PortBackend::Guest(path)) => listening.path() == path,
            (Attached::Vduse(vduse), PortBackend::Vduse(device)) => vduse.device() == device,
            (Attached::Outside(outside), backend) => outside.backend() == backend,
            _ => false,
        }
    }

    /// Has it let go of its other side.
    pub fn end(&self) {
        match self {
            Attached::Guest(listening) => listening.end(),
            Attached::Outside(outside) => outside.end(),
            Attached::Vduse(vduse) => vduse.end(),
        }
    }

    /// Waits until it has, but not longer than `until`; says whether it has.
    pub fn close(self, until: Instant) -> bool {
        match self {
            Attached::Guest(listening) => listening.close(until),
            Attached::Outside(outside) => outside.close(until),
            Attached::Vduse(vduse) => vduse.close(),
        }
    }
}

/// Whether its link may be up.
pub(super) fn is_enabled(settings: &Settings) -> bool {
    settings.link_state != LinkState::Disable
}
