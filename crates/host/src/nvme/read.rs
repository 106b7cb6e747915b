//! What a controller says of its VFs and namespaces, asked with as many commands as it takes.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::inventory::{FlexibleResources, NvmeNamespace, NvmeVirtualization, SecondaryController};

use super::{
    NvmeError,
    identify::{self, IdentifyData, MalformedIdentify, NamespaceIdentity},
};

/// More namespaces than any drive has (NN is a few hundred at most): each takes two questions.
const MOST_NAMESPACES: usize = 4096;

/// What Identify is asked (figure 273, "Controller or Namespace Structure").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdentifyRequest {
    /// Which structure.
    pub structure: u8,
    /// NSID.
    pub namespace: u32,
    /// CNTID.
    pub controller: u16,
}

const NAMESPACE: u8 = 0x00;
const CONTROLLER: u8 = 0x01;
const ACTIVE_NAMESPACES: u8 = 0x02;
const ALLOCATED_NAMESPACES: u8 = 0x10;
const ALLOCATED_NAMESPACE: u8 = 0x11;
const CONTROLLERS_OF_NAMESPACE: u8 = 0x12;
const PRIMARY_CAPABILITIES: u8 = 0x14;
const SECONDARY_CONTROLLERS: u8 = 0x15;

/// Who answers Identify.
pub(super) trait Identify {
    fn identify(&mut self, request: IdentifyRequest) -> Result<Box<IdentifyData>, NvmeError>;

    /// An answer that makes no sense.
    fn malformed(&self, source: MalformedIdentify) -> NvmeError;
}

/// The controller itself.
pub(super) fn controller(drive: &mut impl Identify) -> Result<identify::ControllerIdentity, NvmeError> {
    Ok(identify::controller(&*drive.identify(of(CONTROLLER))?))
}

/// Everything.
pub(super) fn virtualization(drive: &mut impl Identify) -> Result<NvmeVirtualization, NvmeError> {
    let own = controller(drive)?;
    let (mut queues, mut interrupts) = <(FlexibleResources, FlexibleResources)>::default();
    let mut secondary = Vec::new();
    if own.manages_virtualization {
        (queues, interrupts) = identify::primary_capabilities(&*drive.identify(of(PRIMARY_CAPABILITIES))?);
        secondary = secondary_controllers(drive)?;
    }
    let namespaces = namespaces(drive, own)?;
    Ok(NvmeVirtualization {
        controller: own.controller,
        queues,
        interrupts,
        secondary,
        attaches_namespaces: own.attaches_namespaces,
        namespaces,
    })
}

/// The controllers of VFs.
pub(super) fn secondary_controllers(
    drive: &mut impl Identify,
) -> Result<Vec<SecondaryController>, NvmeError> {
    let mut all = Vec::new();
    let mut next = Some(0);
    while let Some(controller) = next {
        let bytes = drive.identify(IdentifyRequest { controller, ..of(SECONDARY_CONTROLLERS) })?;
        let list = identify::secondary_list(&bytes).map_err(|source| drive.malformed(source))?;
        all.extend(list.vfs);
        // Identifiers of later answers are higher: this ends.
        next = list.next.filter(|next| *next > controller);
    }
    Ok(all)
}

fn namespaces(
    drive: &mut impl Identify,
    own: identify::ControllerIdentity,
) -> Result<BTreeMap<u32, NvmeNamespace>, NvmeError> {
    // A controller without namespace management knows only those that it has.
    let (list, one) = match own.attaches_namespaces {
        true => (ALLOCATED_NAMESPACES, ALLOCATED_NAMESPACE),
        false => (ACTIVE_NAMESPACES, NAMESPACE),
    };
    let mut namespaces = BTreeMap::new();
    for namespace in namespace_identifiers(drive, list)? {
        let bytes = drive.identify(IdentifyRequest { namespace, ..of(one) })?;
        let identity = identify::namespace(&bytes).map_err(|source| drive.malformed(source))?;
        // Deleted since it was listed.
        let Some(NamespaceIdentity { size, shared }) = identity else { continue };
        let controllers = match own.attaches_namespaces {
            true => controllers_of(drive, namespace)?,
            false => [own.controller].into(),
        };
        namespaces.insert(namespace, NvmeNamespace { size, shared, controllers, ..NvmeNamespace::default() });
    }
    Ok(namespaces)
}

fn namespace_identifiers(drive: &mut impl Identify, list: u8) -> Result<Vec<u32>, NvmeError> {
    let mut all: Vec<u32> = Vec::new();
    loop {
        let namespace = all.last().copied().unwrap_or_default();
        let bytes = drive.identify(IdentifyRequest { namespace, ..of(list) })?;
        let more = identify::namespace_list(&bytes, namespace).map_err(|source| drive.malformed(source))?;
        let full = more.len() == identify::MOST_NAMESPACES;
        all.extend(more);
        if all.len() > MOST_NAMESPACES {
            let (said, most) = (all.len(), MOST_NAMESPACES);
            let list = "list of namespaces";
            return Err(drive.malformed(MalformedIdentify::TooLong { list, said, most }));
        }
        // There is none behind the last identifier but the one for all.
        if !full || all.last().is_some_and(|last| *last >= u32::MAX - 1) {
            return Ok(all);
        }
    }
}

/// The controllers that a namespace is attached to.
pub(super) fn controllers_of(drive: &mut impl Identify, namespace: u32) -> Result<BTreeSet<u16>, NvmeError> {
    let mut all = BTreeSet::new();
    let mut controller = 0;
    loop {
        let request = IdentifyRequest { namespace, controller, ..of(CONTROLLERS_OF_NAMESPACE) };
        let bytes = drive.identify(request)?;
        let more = identify::controller_list(&bytes).map_err(|source| drive.malformed(source))?;
        let full = more.len() == identify::MOST_CONTROLLERS;
        all.extend(more);
        match all.last().and_then(|last| last.checked_add(1)) {
            Some(next) if full && next > controller => controller = next,
            _ => return Ok(all),
        }
    }
}

const fn of(structure: u8) -> IdentifyRequest {
    IdentifyRequest { structure, namespace: 0, controller: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive with this many allocated namespaces, each attached to the controllers from 0 to 4999, and so many secondary controllers.
    struct Drive {
        oacs: u8,
        namespaces: u32,
        secondary: u16,
        asked: Vec<IdentifyRequest>,
    }

    impl Identify for Drive {
        fn identify(&mut self, request: IdentifyRequest) -> Result<Box<IdentifyData>, NvmeError> {
            self.asked.push(request);
            let mut bytes = Box::new([0; identify::LENGTH]);
            match request.structure {
                CONTROLLER => bytes[256] = self.oacs,
                PRIMARY_CAPABILITIES => bytes[4] = 3,
                ACTIVE_NAMESPACES | ALLOCATED_NAMESPACES => {
                    let listed = (request.namespace + 1..=self.namespaces).zip(bytes.chunks_exact_mut(4));
                    listed.for_each(|(namespace, entry)| entry.copy_from_slice(&namespace.to_le_bytes()));
                }
                NAMESPACE | ALLOCATED_NAMESPACE => (bytes[0], bytes[130]) = (1, 9),
                CONTROLLERS_OF_NAMESPACE => {
                    let count = (5000 - request.controller).min(2047);
                    bytes[..2].copy_from_slice(&count.to_le_bytes());
                    let listed = (request.controller..5000).zip(bytes[2..].chunks_exact_mut(2));
                    listed.for_each(|(controller, entry)| entry.copy_from_slice(&controller.to_le_bytes()));
                }
                SECONDARY_CONTROLLERS => {
                    let first = request.controller.max(1);
                    bytes[0] = (self.secondary + 1).saturating_sub(first).min(127) as u8;
                    let listed = (first..=self.secondary).zip(bytes[32..].chunks_exact_mut(32));
                    for (controller, entry) in listed {
                        entry[..2].copy_from_slice(&controller.to_le_bytes());
                        entry[8..10].copy_from_slice(&controller.to_le_bytes());
                    }
                }
                other => panic!("{other:#x}"),
            }
            Ok(bytes)
        }

        fn malformed(&self, source: MalformedIdentify) -> NvmeError {
            NvmeError::Malformed { drive: "01:00.0".parse().unwrap(), source }
        }
    }

    fn drive(oacs: u8, namespaces: u32, secondary: u16) -> Drive {
        Drive { oacs, namespaces, secondary, asked: Vec::new() }
    }

    #[test]
    fn lists_that_take_several_answers_are_read_whole() {
        let mut drive = drive(0x88, 1024 + 3, 127 + 127 + 2);
        let found = virtualization(&mut drive).unwrap();
        assert_eq!(found.namespaces.len(), 1027);
        let first = &found.namespaces[&1];
        assert_eq!((first.size.0, first.controllers.len()), (512, 5000));
        assert_eq!(found.secondary.len(), 256);
        assert!(found.attaches_namespaces);
    }

    #[test]
    fn a_drive_is_asked_only_for_what_it_has() {
        let mut drive = drive(0, 1, 9);
        let found = virtualization(&mut drive).unwrap();
        assert!(found.secondary.is_empty() && !found.attaches_namespaces);
        assert_eq!(found.namespaces[&1].controllers, [0].into(), "its own");
        let asked: Vec<u8> = drive.asked.iter().map(|request| request.structure).collect();
        assert_eq!(asked, [CONTROLLER, ACTIVE_NAMESPACES, NAMESPACE]);
    }

    #[test]
    fn a_list_without_end_is_refused() {
        let error = virtualization(&mut drive(8, 1 << 20, 0)).unwrap_err();
        assert!(matches!(error, NvmeError::Malformed { .. }), "{error}");
    }
}
