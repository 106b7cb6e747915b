//! From a document to a model: fills in the defaults, and finds whatever is wrong that needs no machine to know.

mod address;
mod board;
mod container_nic;
mod cpus;
mod device;
mod dns;
mod drive;
mod external;
mod function;
mod generate;
pub(crate) mod guest;
mod igb;
mod mac;
mod measure;
mod nic;
mod realtime;
mod route;
mod taps;
mod tenant;
mod uplink;
mod vdpa;
mod vm;

use std::collections::{BTreeSet, HashSet};

use indexmap::IndexMap;

use crate::{
    Board, Function, FunctionName, Guest, GuestKind, GuestName, InterfaceAddress, InterfaceName, Mac, Model,
    Nic, NicName, Root, VfCount,
    diagnostic::{Diagnostic, Path, Severity},
    document::{
        BoardDocument, FunctionDocument, FunctionEntry, GuestAddress, GuestDocument, ModelDocument,
        NicDocument, OneOrMany, UplinkEntry,
    },
    machine::{named_after, nameless},
};

/// The most messages that are shown for one file.
pub(crate) const MAX_MESSAGES: usize = 100;
/// The most VFs of a model. A PCI segment has as many routing ids.
const MAX_VFS: u64 = 1 << 16;

/// A function that a guest owns, with its place in the file.
struct Owned {
    guest: GuestName,
    kind: GuestKind,
    path: Path,
    /// As written; what comes from the NIC's defaults is not in it.
    written: FunctionDocument,
    /// Whether `interface` is written.
    named: bool,
    addresses: Vec<(InterfaceAddress, Path)>,
    /// Where `dhcp` stands among them.
    dhcp: Option<Path>,
    routes: Vec<route::WrittenRoute>,
    function: Function,
}

impl Owned {
    /// Where its name stands.
    fn name_path(&self) -> Path {
        self.path.join(if self.function.name.vf.is_some() { "vf" } else { "pf" })
    }
}

/// The host's own addresses on a PF.
struct HostAddresses {
    nic: NicName,
    addresses: Vec<(InterfaceAddress, Path)>,
}

/// What was written, and what was reported before: for checks that look at all of it at once.
#[derive(Default)]
struct AllWritten {
    /// Of NICs that guests own.
    macs: Vec<tenant::Written>,
    addresses: Vec<container_nic::WrittenAddress>,
    routes: Vec<route::WrittenRoute>,
    /// Where drives of guests and files that are made for them stand, in the order in which the model has them: what could not be read is
    /// not there, and stands in the file all the same.
    drives: Vec<Path>,
    generate: Vec<Path>,
    /// Where something stands that could not be read, and what it is part of.
    reported: HashSet<Path>,
}

impl AllWritten {
    fn new(messages: &[Diagnostic]) -> AllWritten {
        let above = |path: &Path| Path(path.0.split_last().map_or(&[][..], |(_, above)| above).to_vec());
        let reported =
            messages.iter().flat_map(|message| [message.path.clone(), above(&message.path)]).collect();
        AllWritten { reported, ..AllWritten::default() }
    }
}

/// Everything that the checks look at.
struct Subject<'a> {
    model: &'a Model,
    owned: &'a [Owned],
    host: &'a [HostAddresses],
    messages: &'a mut Vec<Diagnostic>,
}

/// The model that `document`, read from the file called `file`, describes. What is wrong is added to `messages`;
/// the model is good only if that adds no error.
pub(crate) fn check(document: ModelDocument, file: &str, messages: &mut Vec<Diagnostic>) -> Model {
    let ModelDocument { machine, nics, drives, guests, realtime, measure, expect, board } = document;
    let says_machine = machine.is_some();
    let of_file = named_after(file);
    let names_itself = of_file.is_some();
    let machine = machine.or(of_file).unwrap_or_else(nameless);
    let highest = highest_indices(&guests);
    let mut host = Vec::new();
    let nics: IndexMap<NicName, Nic> = nics
        .into_iter()
        .map(|(name, mut nic)| {
            let path = Path::of(["nics", name.as_str()]);
            let mut words: BTreeSet<String> = std::mem::take(&mut nic.best_effort).into_iter().collect();
            nic::check_words("best_effort", &words, &path, messages);
            // Each function of the NIC gets a copy.
            words.retain(|word| nic::is_attribute(word));
            host.push(HostAddresses {
                nic: name.clone(),
                addresses: with_places(&path, &nic.address, &nic.addresses),
            });
            let nic = build_nic(nic, highest.get(&name).copied(), &host[host.len() - 1]);
            (name, Nic { best_effort: words, ..nic })
        })
        .collect();
    let drives = drive::build(drives, &guests);
    let mut owned = Vec::new();
    let mut lists = cpus::Lists::default();
    let mut written = AllWritten::new(messages);
    let guests: IndexMap<GuestName, Guest> = guests
        .into_iter()
        .map(|(name, mut guest)| {
            let own = std::mem::take(&mut guest.nics);
            let path = Path::of(["guests", name.as_str()]);
            let owned_drives = drive::build_guest(
                std::mem::take(&mut guest.drives),
                &path,
                &drives,
                &mut written.drives,
                messages,
            );
            let own = match guest.kind.unwrap_or_default() {
                GuestKind::Vm => {
                    tenant::build(machine.as_str(), &name, own, &nics, &mut written.macs, messages)
                }
                GuestKind::Container => {
                    container_nic::build(machine.as_str(), &name, own, &nics, &mut written, messages)
                }
            };
            let guest = build_guest(&name, guest, &nics, &mut owned, &mut lists, &mut written, messages);
            let guest = Guest { nics: own, drives: owned_drives, ..guest };
            (name, guest)
        })
        .collect();
    let realtime = realtime::build(realtime, guests.values(), &mut lists, messages);
    let (measure, targets) = measure::build(measure, messages);
    let lines = measure::build_expect(expect, messages);
    let (expect, expect_latency) = (measure::lines(&lines), measure::claims(&lines));
    let model = Model {
        machine: machine.to_string(),
        nics,
        drives,
        guests,
        realtime,
        measure,
        expect,
        expect_latency,
        board: build_board(board),
    };
    let mut subject = Subject { model: &model, owned: &owned, host: &host, messages };
    nic::check(&mut subject);
    drive::check(&written.drives, &mut subject);
    external::check(&mut subject);
    function::check(&mut subject);
    mac::check(&mut subject);
    address::check(&written.addresses, &mut subject);
    route::check(&written.routes, &mut subject);
    guest::check(&mut subject);
    cpus::check(&mut subject);
    realtime::check(&mut subject);
    vm::check(&mut subject);
    uplink::check(&mut subject);
    tenant::check(&written.macs, &mut subject);
    if !says_machine {
        tenant::check_machine(names_itself, &written.macs, &mut subject);
    }
    container_nic::check(&mut subject);
    generate::check(&written.generate, &mut subject);
    measure::check(&targets, &lines, &mut subject);
    board::check(&mut subject);
    model
}

/// The highest VF index of each NIC that a guest uses, or the uplink of a NIC of its own.
fn highest_indices(guests: &IndexMap<GuestName, GuestDocument>) -> IndexMap<NicName, u16> {
    let mut highest = IndexMap::new();
    let functions = guests.values().flat_map(|guest| &guest.functions).map(|entry| match entry {
        FunctionEntry::Name(name) => Some(name),
        FunctionEntry::Settings(settings) => settings.vf.as_ref(),
        FunctionEntry::Spoiled => None,
    });
    let nics = guests.values().flat_map(|guest| guest.nics.values());
    let uplinks = nics.map(|nic| nic.uplink.as_ref().and_then(UplinkEntry::function));
    for name in functions.chain(uplinks) {
        if let Some(FunctionName { nic, vf: Some(index) }) = name {
            let most = highest.entry(nic.clone()).or_insert(0);
            *most = index.get().max(*most);
        }
    }
    highest
}

/// What stands under both keys of addresses, each with its place.
fn with_places<T: Copy + schemars::JsonSchema>(
    path: &Path,
    one: &Option<OneOrMany<T>>,
    many: &Option<OneOrMany<T>>,
) -> Vec<(T, Path)> {
    [("address", one), ("addresses", many)]
        .into_iter()
        .flat_map(|(key, list)| {
            let path = path.join(key);
            list.iter().flat_map(move |list| {
                let path = path.clone();
                list.values.iter().enumerate().map(move |(n, address)| {
                    let place = if list.list { path.join(n) } else { path.clone() };
                    (*address, place)
                })
            })
        })
        .collect()
}

/// The addresses that are fixed, each with its place, and where it stands that one is to be asked for. Of one interface that is asked once:
/// each word more is an error.
fn guest_addresses(
    path: &Path,
    one: &Option<OneOrMany<GuestAddress>>,
    many: &Option<OneOrMany<GuestAddress>>,
    messages: &mut Vec<Diagnostic>,
) -> (Vec<(InterfaceAddress, Path)>, Option<Path>) {
    let (mut fixed, mut dhcp): (_, Option<Path>) = (Vec::new(), None);
    for (address, place) in with_places(path, one, many) {
        match (address, &dhcp) {
            (GuestAddress::Fixed(address), _) => fixed.push((address, place)),
            (GuestAddress::Dhcp, None) => dhcp = Some(place),
            (GuestAddress::Dhcp, Some(first)) => messages.push(
                Diagnostic::error(place, "`dhcp` is there twice: an interface asks for one lease")
                    .with_related(first.clone(), "first given here")
                    .with_hint("leave one of them out"),
            ),
        }
    }
    (fixed, dhcp)
}

fn build_nic(document: NicDocument, highest: Option<u16>, host: &HostAddresses) -> Nic {
    Nic {
        matching: document.matching,
        vfs: document.vfs.map_or(highest.map_or(0, |index| index + 1), VfCount::get),
        externally_managed: document.externally_managed.unwrap_or_default(),
        loopback: document.loopback,
        eswitch: document.eswitch,
        mtu: document.mtu,
        interface: document.interface,
        addresses: host.addresses.iter().map(|(address, _)| *address).collect(),
        vf_defaults: document.defaults,
        free_driver: document.free.driver,
        best_effort: BTreeSet::new(),
    }
}

fn build_guest(
    name: &GuestName,
    document: GuestDocument,
    nics: &IndexMap<NicName, Nic>,
    owned: &mut Vec<Owned>,
    lists: &mut cpus::Lists,
    all: &mut AllWritten,
    messages: &mut Vec<Diagnostic>,
) -> Guest {
    let path = Path::of(["guests", name.as_str()]);
    let kind = document.kind.unwrap_or_default();
    guest::check_keys(name, kind, &document, &path, messages);
    let mut functions = Vec::new();
    for (position, entry) in document.functions.into_iter().enumerate() {
        let path = path.join("functions").join(position);
        let Some(function) =
            build_function((name, kind), path, position, entry, nics, &all.reported, messages)
        else {
            continue;
        };
        functions.push(function.function.clone());
        owned.push(function);
    }
    let root = match document.root {
        None => Root::Overlay,
        Some(root) if root == "overlay" => Root::Overlay,
        Some(root) => {
            guest::check_root(&root, &path.join("root"), messages);
            Root::Directory(root)
        }
    };
    if let Some(init) = &document.init {
        guest::check_init(init, &path.join("init"), messages);
    }
    let generate = generate::build(document.generate, &path, &mut all.generate, messages);
    let devices = device::build(document.devices, &path, messages);
    let pin = lists.expand(document.pin, &path.join("pin"), messages);
    let emulator = lists.expand(document.emulator, &path.join("emulator"), messages);
    let realtime = realtime::build_guest(document.realtime, document.exclusive, kind, lists, &path, messages);
    let vm = vm::build(
        vm::Written {
            boot: document.boot,
            command_line: document.command_line,
            firmware: document.firmware,
            emulator,
            locked_memory: document.locked_memory,
            huge_pages: document.huge_pages,
            inside: document.inside,
            ready_within: document.ready_within,
        },
        &path,
        messages,
    );
    let says = (&generate[..], !functions.is_empty());
    let dns = dns::build((name, kind, &vm.boot), says, document.dns, &path.join("dns"), all, messages);
    Guest {
        kind,
        cpus: document.cpus,
        memory: document.memory,
        pin,
        // A partition of CPUs is nobody else's.
        exclusive: document.exclusive.unwrap_or_default() || realtime.is_some(),
        realtime,
        functions,
        drives: Vec::new(),
        nics: IndexMap::new(),
        dns,
        after: document.after,
        root,
        init: document.init.map(words).unwrap_or_default(),
        privileged: document.privileged.unwrap_or_default(),
        devices,
        vm,
        generate,
    }
}

/// A command written as a list, or as a line of words without any quoting.
fn words(command: OneOrMany<String>) -> Vec<String> {
    match command.list {
        true => command.values,
        false => command.values.iter().flat_map(|line| line.split_whitespace()).map(str::to_owned).collect(),
    }
}

fn build_function(
    (guest, kind): (&GuestName, GuestKind),
    path: Path,
    position: usize,
    entry: FunctionEntry,
    nics: &IndexMap<NicName, Nic>,
    reported: &HashSet<Path>,
    messages: &mut Vec<Diagnostic>,
) -> Option<Owned> {
    let (name, mut written) = match entry {
        FunctionEntry::Spoiled => return None,
        FunctionEntry::Name(name) => (name, FunctionDocument::default()),
        FunctionEntry::Settings(document) => {
            (document.vf.clone().or_else(|| document.pf.clone())?, *document)
        }
    };
    let nic = nics.get(&name.nic);
    let settings = match nic {
        // A PF keeps no VF attributes for itself.
        Some(nic) if name.vf.is_some() => written.settings().over(&nic.vf_defaults),
        _ => written.settings(),
    };
    let (addresses, dhcp) = guest_addresses(&path, &written.address, &written.addresses, messages);
    let own: Vec<InterfaceAddress> = addresses.iter().map(|(address, _)| *address).collect();
    let documents = std::mem::take(&mut written.routes);
    let routes = route::build((guest, kind), &path, &written.gateway, documents, &own, reported, messages);
    let interface =
        written.interface.clone().or_else(|| format!("eth{position}").parse::<InterfaceName>().ok())?;
    let of_nic = nic.into_iter().flat_map(|nic| &nic.best_effort);
    let of_nic = of_nic.filter(|word| !written.required.contains(word));
    let best_effort = written.best_effort.iter().chain(of_nic).cloned().collect();
    Some(Owned {
        guest: guest.clone(),
        kind,
        path,
        named: written.interface.is_some(),
        function: Function {
            name,
            settings,
            interface,
            addresses: own,
            routes: route::routes(&routes),
            dhcp: dhcp.is_some(),
            mtu: written.mtu,
            // As for `max_tx_rate`, a limit of 0 is none.
            egress_rate: written.egress_rate.filter(|rate| rate.0 != 0),
            ingress_rate: written.ingress_rate.filter(|rate| rate.0 != 0),
            best_effort,
        },
        addresses,
        dhcp,
        routes,
        written,
    })
}

fn build_board(document: BoardDocument) -> Board {
    Board {
        cables: document.cables,
        cpus: document.cpus,
        kernel: document.kernel,
        memory: document.memory,
        emulation: document.emulation,
        iommu: document.iommu,
        nvme_vfs: document.nvme_vfs,
        icount: document.icount.unwrap_or_default(),
    }
}

/// Whether there are more errors than will be shown, so that looking for more is in vain. Warnings do not count: what is not looked at after
/// them could be the error to show. Only the last messages are looked at, because this is asked for each entry of a list.
fn full(messages: &[Diagnostic]) -> bool {
    const LAST: usize = 16 * MAX_MESSAGES;
    let errors = messages.iter().rev().take(LAST).filter(|message| message.severity == Severity::Error);
    messages.len() > MAX_MESSAGES && errors.take(MAX_MESSAGES + 1).count() > MAX_MESSAGES
}

/// Why no function can have this address.
fn unusable(mac: Mac) -> Option<&'static str> {
    if mac.is_zero() {
        Some("is all zero, which drivers read as no address")
    } else if mac.is_multicast() {
        Some("is a multicast address, which no function can own")
    } else {
        None
    }
}
