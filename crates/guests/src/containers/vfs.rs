//! What a VF has from its PF, seen on the container's side of it: its MAC address and its link.
//!
//! The driver of a VF asks that of its PF through a mailbox, and some ask only when they are bound, brought up or taken down: igbvf
//! waits a few milliseconds and then goes on without an answer. It has an address of its own making then, or no link, no VLANs and
//! no frames longer than usual for as long as nobody asks again (`drivers/net/ethernet/intel/igbvf/vf.c`, `e1000_reset_hw_vf`;
//! `mbx.c`: after an answer that did not come `timeout` is 0, and nothing more is asked). A kernel with PREEMPT_RT misses many.
//! That a VF has its link is the proof that its driver and its PF's are on speaking terms.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use penstock_host::{InterfaceReport, Netlink, Root, VfBackend, files, interrupt, irq, running::Running};
use penstock_model::{Bdf, GuestName, InterfaceAddress, LinkState};
use penstock_plan::action::{GuestDefinition, GuestFunction};

use super::Containers;
use crate::error::GuestError;

/// How long the VFs of one container may take to have their links, those that are brought down and up for it included.
const LINK: Duration = Duration::from_secs(60);

/// How long a VF may take to have its link once it was brought up; igbvf on an emulated CPU takes less than one.
const COMES: Duration = Duration::from_secs(2);

/// How long a link has to stay on a kernel with PREEMPT_RT. The first IPv6 messages have the driver ask its PF once more, and it looks
/// for its link every two seconds (`igbvf_watchdog_task`): an answer that did not come shows by then.
const STAYS: Duration = Duration::from_secs(3);

/// How long a PF may be without its link on such a kernel before its VFs are excused; autonegotiation takes up to five. A driver that
/// resets its NIC takes the link away for as long, and its VFs may miss what it tells them afterwards.
const OF_PF: Duration = Duration::from_secs(5);

/// How often the PFs of VFs without a link are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(50);

/// `NET_ADDR_RANDOM` of `addr_assign_type` (`include/uapi/linux/netdevice.h`).
const RANDOM: &str = "1";

/// Refuses an interface on the host that has another address than its VF is to have.
///
/// # Errors
///
/// [`GuestError::WrongMac`] when it has another than the one that its PF keeps for it; where none is kept, never.
pub fn check_mac(root: &Root, owned: &GuestFunction, found: &InterfaceReport) -> Result<(), GuestError> {
    let kind = root.path(format!("/sys/class/net/{}/addr_assign_type", found.interface.name));
    let kind = files::read_to_string(kind).unwrap_or_default();
    compare(owned, found, kind.trim() == RANDOM)
}

fn compare(owned: &GuestFunction, found: &InterfaceReport, made_up: bool) -> Result<(), GuestError> {
    let seen = found.interface.mac;
    match owned.mac.filter(|wanted| owned.mac_is_kept && *wanted != seen) {
        None => Ok(()),
        Some(wanted) => Err(GuestError::WrongMac {
            function: owned.function,
            interface: found.interface.name.clone(),
            wanted,
            seen,
            made_up,
        }),
    }
}

/// A VF that is to have a link as soon as its PF has one.
struct Expected<'a> {
    owned: &'a GuestFunction,
    pf: Bdf,
    /// When it was brought up last, as far as that is known.
    up_since: Instant,
    /// How often it was brought down and up.
    cycles: usize,
    /// Since when it has its link without a break.
    linked_since: Option<Instant>,
    /// Whether its PF was told to give it none.
    shut: bool,
}

impl Expected<'_> {
    /// Whether nothing more is expected of it: its link has stayed, or cannot come.
    fn is_settled(&self, pfs: &Pfs, stays: Duration) -> bool {
        let has_stayed = self.linked_since.is_some_and(|since| since.elapsed() >= stays);
        has_stayed || (self.linked_since.is_none() && (self.shut || pfs.excuses(self.pf)))
    }

    /// Whether it has had its time, and is to be brought down and up.
    fn is_due(&self, pfs: &Pfs) -> bool {
        let had_its_time = self.linked_since.is_none() && self.up_since.elapsed() >= COMES;
        had_its_time && !self.shut && !pfs.is_dark(self.pf)
    }
}

/// Which PFs have no link, and since when.
struct Pfs {
    dark: BTreeMap<Bdf, Instant>,
    /// Those that had none when it was looked for the first time, where nobody waits for these: their cables are not in.
    unplugged: BTreeSet<Bdf>,
}

impl Pfs {
    fn is_dark(&self, pf: Bdf) -> bool {
        self.dark.contains_key(&pf)
    }

    fn excuses(&self, pf: Bdf) -> bool {
        self.dark.get(&pf).is_some_and(|since| self.unplugged.contains(&pf) || since.elapsed() >= OF_PF)
    }

    /// Takes down which of these PFs have links now. A VF whose PF has got its link back has its time anew.
    fn see(&mut self, linked: &BTreeSet<Bdf>, expected: &mut [Expected<'_>]) {
        let now = Instant::now();
        for vf in expected.iter_mut().filter(|vf| vf.linked_since.is_none()) {
            if !linked.contains(&vf.pf) {
                self.dark.entry(vf.pf).or_insert(now);
            } else if self.dark.contains_key(&vf.pf) {
                vf.up_since = now;
            }
        }
        self.dark.retain(|pf, _| !linked.contains(pf));
        self.unplugged.retain(|pf| !linked.contains(pf));
    }
}

impl Containers {
    /// Sees that every VF inside a container that has just started has the address that it is to have, and a link where its PF
    /// has one. One without is brought down and up until it has, on a CPU where its PF can answer; its IPv6 addresses and
    /// its routes, which the kernel drops on the way, are put back.
    ///
    /// # Errors
    ///
    /// [`GuestError::WrongMac`]; [`GuestError::NoLink`] after 60 s, or at `deadline`.
    pub(super) fn prove_vfs(
        &self,
        definition: &GuestDefinition,
        init: Running,
        deadline: Instant,
    ) -> Result<(), GuestError> {
        let began = Instant::now();
        let mut inside = Netlink::in_namespace_of(init.id)?;
        let reports = inside.interfaces()?;
        for owned in &definition.functions {
            if let Some(found) = self.interfaces.find(owned.function, &reports) {
                compare(owned, &found, false)?;
            }
        }
        let of = |owned: &GuestFunction| self.interfaces.physical_function(owned.function);
        let vfs: Vec<(&GuestFunction, Bdf)> =
            definition.functions.iter().filter_map(|owned| Some((owned, of(owned)?))).collect();
        let until = deadline.min(began + LINK);
        let strict = is_preempt_rt(&self.root);
        let mut pfs = Pfs { dark: BTreeMap::new(), unplugged: BTreeSet::new() };
        let fresh =
            |(owned, pf)| Expected { owned, pf, up_since: began, cycles: 0, linked_since: None, shut: false };
        let mut expected: Vec<Expected<'_>> = vfs.into_iter().map(fresh).collect();
        let mut looked: Option<Instant> = None;
        let stays = if strict { STAYS } else { Duration::ZERO };
        loop {
            let reports = inside.interfaces()?;
            for vf in &mut expected {
                vf.linked_since = match self.is_without_link(vf.owned.function, &reports) {
                    true => None,
                    false => vf.linked_since.or_else(|| Some(Instant::now())),
                };
            }
            let without = |vf: &&Expected<'_>| vf.linked_since.is_none();
            let dark: BTreeSet<Bdf> = expected.iter().filter(without).map(|vf| vf.pf).collect();
            if !dark.is_empty() && looked.is_none_or(|when| when.elapsed() >= LOOK) {
                let linked = self.linked_pfs(definition, &mut inside, &dark);
                pfs.see(&linked, &mut expected);
                if !strict && looked.is_none() {
                    pfs.unplugged = pfs.dark.keys().copied().collect();
                }
                looked = Some(Instant::now());
            }
            if expected.iter().all(|vf| vf.is_settled(&pfs, stays)) {
                return Ok(());
            }
            let open = expected.iter().find(|vf| vf.linked_since.is_none() && !vf.is_settled(&pfs, stays));
            if let Some(vf) = open.filter(|_| Instant::now() >= until) {
                return Err(no_link(vf, began));
            }
            self.bring_round(&mut expected, &pfs, definition, init, &mut inside)?;
            if interrupt::pending() || !init.is_alive_below(&self.root) {
                // Who called sees that for itself.
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Brings those down and up that have had their time; those that their PF was told to give none are expected no more.
    fn bring_round(
        &self,
        expected: &mut [Expected<'_>],
        pfs: &Pfs,
        definition: &GuestDefinition,
        init: Running,
        inside: &mut Netlink,
    ) -> Result<(), GuestError> {
        let due: Vec<(&GuestFunction, Bdf)> =
            expected.iter().filter(|vf| vf.is_due(pfs)).map(|vf| (vf.owned, vf.pf)).collect();
        if due.is_empty() {
            return Ok(());
        }
        let shut = self.shut_by_pf(definition, inside, &due);
        expected.iter_mut().for_each(|vf| vf.shut |= shut.contains(&vf.owned.function));
        for vf in expected.iter_mut().filter(|vf| vf.is_due(pfs)) {
            let guest = &definition.guest;
            irq::beside(&self.root, vf.pf, vf.cycles, || self.cycle(guest, vf.owned, init, inside))?;
            vf.cycles += 1;
            vf.up_since = Instant::now();
        }
        Ok(())
    }

    /// Takes an interface down and up again, which has its driver ask its PF for everything once more. The kernel drops IPv6 addresses and
    /// all routes on the way: those addresses that it had and the routes of the definition are put back.
    fn cycle(
        &self,
        guest: &GuestName,
        owned: &GuestFunction,
        init: Running,
        inside: &mut Netlink,
    ) -> Result<(), GuestError> {
        let Some(mut found) = self.interfaces.find(owned.function, &inside.interfaces()?) else {
            return Ok(());
        };
        inside.set_up(found.index, false)?;
        found.interface.up = false;
        // One that the kernel makes itself comes back by itself.
        let dropped = |address: &InterfaceAddress| address.ip().is_ipv6() && !address.is_kernel_made();
        let (dropped, kept) = found.interface.addresses.iter().partition::<Vec<_>, _>(|one| dropped(one));
        found.interface.addresses = kept;
        self.put_back(guest, inside, init, &found, (&dropped, &owned.routes))
    }

    /// Whether the interface of a function is up inside and has no link.
    fn is_without_link(&self, function: Bdf, inside: &[InterfaceReport]) -> bool {
        let found = self.interfaces.find(function, inside);
        found.is_some_and(|found| found.interface.up && found.interface.carrier == Some(false))
    }

    /// Those of these PFs that have their links, whether on the host, in this container or in another one.
    fn linked_pfs(
        &self,
        definition: &GuestDefinition,
        inside: &mut Netlink,
        pfs: &BTreeSet<Bdf>,
    ) -> BTreeSet<Bdf> {
        let has_link = |pf: &Bdf| {
            let found = self.with_pf(definition, inside, *pf, |_, found| found.interface.carrier);
            found.flatten() == Some(true)
        };
        pfs.iter().copied().filter(has_link).collect()
    }

    /// Those of these VFs that their PF was told to give no link.
    fn shut_by_pf(
        &self,
        definition: &GuestDefinition,
        inside: &mut Netlink,
        vfs: &[(&GuestFunction, Bdf)],
    ) -> BTreeSet<Bdf> {
        let mut by_pf: BTreeMap<Bdf, Vec<Bdf>> = BTreeMap::new();
        vfs.iter().for_each(|(owned, pf)| by_pf.entry(*pf).or_default().push(owned.function));
        let mut shut = BTreeSet::new();
        for (pf, functions) in by_pf {
            let pci = penstock_host::PciFunction::new(&self.root, pf);
            let Ok(indices) = pci.virtual_functions() else { continue };
            let states = self.with_pf(definition, inside, pf, |netlink, found| {
                VfBackend::of(&self.root, netlink, found.index).and_then(|mut backend| backend.vfs()).ok()
            });
            for (index, state) in states.flatten().unwrap_or_default() {
                let function = indices.iter().find(|(at, _)| *at == index).map(|(_, function)| *function);
                let is_shut = state.link_state == Some(LinkState::Disable);
                shut.extend(function.filter(|function| is_shut && functions.contains(function)));
            }
        }
        shut
    }

    /// Looks at a PF's interface where it is; `None` where it is nowhere to be seen.
    fn with_pf<R>(
        &self,
        definition: &GuestDefinition,
        inside: &mut Netlink,
        pf: Bdf,
        look: impl FnOnce(&mut Netlink, &InterfaceReport) -> R,
    ) -> Option<R> {
        let find = |netlink: &mut Netlink| self.interfaces.find(pf, &netlink.interfaces().ok()?);
        let mut host = Netlink::open().ok()?;
        if let Some(found) = find(&mut host) {
            return Some(look(&mut host, &found));
        }
        if let Some(found) = find(inside) {
            return Some(look(inside, &found));
        }
        let holder = self.state.holder(pf, &definition.guest).ok()??;
        let mut there = Netlink::in_namespace_of(self.running(&holder).ok()??.id).ok()?;
        let found = find(&mut there)?;
        Some(look(&mut there, &found))
    }
}

fn no_link(vf: &Expected<'_>, began: Instant) -> GuestError {
    GuestError::NoLink {
        function: vf.owned.function,
        pf: vf.pf,
        interface: vf.owned.interface.clone(),
        after: began.elapsed(),
        cycles: vf.cycles,
    }
}

pub(super) fn is_preempt_rt(root: &Root) -> bool {
    files::read_to_string(root.path("/sys/kernel/realtime")).is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use penstock_model::{Mac, inventory::Interface};

    use super::*;

    fn report(mac: &str) -> InterfaceReport {
        InterfaceReport {
            index: 2,
            interface: Interface {
                name: "eth3".parse().unwrap(),
                mac: mac.parse().unwrap(),
                mtu: 1500,
                up: true,
                carrier: Some(true),
                speed: None,
                addresses: vec![],
                routes: vec![],
                master: None,
                uppers: Vec::new(),
            },
            permanent_mac: None,
            device: None,
            kind: None,
            port_name: None,
            promiscuous: None,
            routes: None,
            master: None,
            lower: None,
        }
    }

    #[test]
    fn only_an_address_that_the_pf_keeps_is_required() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let mac: Mac = "02:00:00:00:00:01".parse().unwrap();
        let owned = |mac_is_kept, mac| GuestFunction {
            mac,
            mac_is_kept,
            ..GuestFunction::bare("0000:04:10.0".parse().unwrap(), "net0".parse().unwrap())
        };
        let (right, wrong) = (report("02:00:00:00:00:01"), report("aa:00:00:00:00:02"));
        assert!(check_mac(&root, &owned(true, Some(mac)), &right).is_ok());
        assert!(check_mac(&root, &owned(false, Some(mac)), &wrong).is_ok());
        assert!(check_mac(&root, &owned(true, None), &wrong).is_ok());
        let error = check_mac(&root, &owned(true, Some(mac)), &wrong).unwrap_err().to_string();
        assert_eq!(
            error,
            "the interface eth3 of VF 0000:04:10.0 has the address aa:00:00:00:00:02, and its PF keeps 02:00:00:00:00:01 for it"
        );
        let kind = root.path("/sys/class/net/eth3/addr_assign_type");
        files::create_dir_all(kind.parent().unwrap()).unwrap();
        files::write_atomic(&kind, "1\n").unwrap();
        let error = check_mac(&root, &owned(true, Some(mac)), &wrong).unwrap_err().to_string();
        assert!(
            error.ends_with(": its driver made that up, since its PF did not answer when it was bound"),
            "{error}"
        );
    }

    /// A PF that resets itself has no link for a while: its VFs are not given up for that, and have their time anew afterwards.
    #[test]
    fn a_vf_is_excused_only_once_its_pf_has_had_no_link_for_long() {
        let (function, pf): (Bdf, Bdf) = ("0000:04:10.0".parse().unwrap(), "0000:04:00.0".parse().unwrap());
        let owned = GuestFunction::bare(function, "net0".parse().unwrap());
        let Some(long_ago) = Instant::now().checked_sub(COMES * 2) else {
            return penstock_testkit::skip::whole("this machine was started too short a time ago");
        };
        let without =
            || Expected { owned: &owned, pf, up_since: long_ago, cycles: 1, linked_since: None, shut: false };
        let mut pfs = Pfs { dark: BTreeMap::new(), unplugged: BTreeSet::new() };
        let mut vfs = [without()];
        let linked = BTreeSet::from([pf]);
        pfs.see(&linked, &mut vfs);
        assert!(vfs[0].is_due(&pfs) && !vfs[0].is_settled(&pfs, STAYS));
        // Its PF resets itself: it is waited for.
        pfs.see(&BTreeSet::new(), &mut vfs);
        assert!(!vfs[0].is_due(&pfs) && !vfs[0].is_settled(&pfs, STAYS));
        // It comes back, and the VF has its time anew, and is then brought round.
        pfs.see(&linked, &mut vfs);
        assert!(!vfs[0].is_due(&pfs) && !vfs[0].is_settled(&pfs, STAYS));
        vfs[0].up_since = long_ago;
        assert!(vfs[0].is_due(&pfs));
        // One that stays away excuses them; one that was told to give none does so at once.
        let mut gone = Pfs { dark: BTreeMap::from([(pf, Instant::now())]), unplugged: BTreeSet::from([pf]) };
        assert!(vfs[0].is_settled(&gone, STAYS) && !vfs[0].is_due(&gone));
        gone.dark.clear();
        let shut = Expected { shut: true, ..without() };
        assert!(shut.is_settled(&gone, STAYS) && !shut.is_due(&gone));
        // A link that came has to stay.
        let fresh = Expected { linked_since: Some(Instant::now()), ..without() };
        assert!(!fresh.is_settled(&pfs, STAYS) && fresh.is_settled(&pfs, Duration::ZERO));
    }
}
