//! A machine whose rules are those of a real one, and that can be killed at any event.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    rc::Rc,
    time::Duration,
};

use penstock_model::{Bdf, GuestName, Inventory, Mtu, VfAttribute, VfIndex, inventory::FoundGuest};
use penstock_plan::{
    Action, ActionGroup, Direction, Execute, ExecuteError, Executors, Fact, FileAction, FunctionAction,
    GuestAction, Observe, Plan, Step, StepId, action::GuestDefinition,
};

use crate::{
    Applied, ApplyError, Mode, Options,
    journal::{Entry, Journal, JournalError},
};

type World = BTreeMap<String, String>;

/// How long a run lives: to its end, or until so many events (a journal's write, a step) have happened.
#[derive(Clone, Copy)]
pub enum Life {
    Whole,
    Until(usize),
}

#[derive(Default)]
struct Inner {
    world: World,
    events: usize,
    dies_at: Option<usize>,
    refused: Option<Action>,
}

impl Inner {
    /// Counts an event; says whether who caused it still lives.
    fn event(&mut self) -> bool {
        let lives = self.dies_at.is_none_or(|end| self.events < end);
        self.events += usize::from(lives);
        lives
    }

    fn is_dead(&self) -> bool {
        self.dies_at.is_some_and(|end| self.events >= end)
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.world.get(key).map(String::as_str)
    }
}

/// The machine, and a handle on it.
#[derive(Clone)]
pub struct Machine(Rc<RefCell<Inner>>);

pub fn pf(n: usize) -> Bdf {
    format!("{:02x}:00.0", n + 4).parse().unwrap()
}

pub fn guest(name: &str) -> GuestName {
    name.parse().unwrap()
}

pub fn vf(pf: usize, vf: usize) -> Bdf {
    format!("{:02x}:10.{vf}", pf + 4).parse().unwrap()
}

const FILE: &str = "/etc/penstock-test";

impl Machine {
    pub fn with(world: World) -> Machine {
        Machine(Rc::new(RefCell::new(Inner { world, ..Inner::default() })))
    }

    /// The first NIC is fresh; the second has 4 VFs, one of which a guest runs with.
    pub fn before() -> Machine {
        let mut world = World::new();
        for n in 0..2 {
            world.insert(format!("autoprobe {}", pf(n)), "true".to_owned());
            world.insert(format!("mtu {}", pf(n)), "1500".to_owned());
            world.insert(format!("link {}", pf(n)), "Down".to_owned());
            world.insert(format!("vfs {}", pf(n)), "0".to_owned());
        }
        make_vfs(&mut world, 1, 4);
        world.insert("guest old".to_owned(), "running".to_owned());
        Machine::with(world)
    }

    pub fn snapshot(&self) -> World {
        self.0.borrow().world.clone()
    }

    pub fn events(&self) -> usize {
        self.0.borrow().events
    }

    pub fn live(&self, life: Life) {
        let mut inner = self.0.borrow_mut();
        inner.events = 0;
        inner.dies_at = match life {
            Life::Whole => None,
            Life::Until(end) => Some(end),
        };
    }

    /// Makes one action fail.
    pub fn refuse(&self, action: Action) {
        self.0.borrow_mut().refused = Some(action);
    }

    pub fn refuse_nothing(&self) {
        self.0.borrow_mut().refused = None;
    }

    /// The machine as a scan shows it.
    pub fn inventory(&self) -> Inventory {
        let mut present = penstock_testkit::models::machine(2, 8);
        for (n, found) in present.pfs.iter_mut().enumerate() {
            found.bdf = pf(n);
        }
        let world = self.snapshot();
        for (name, n) in USERS {
            if world.get(&format!("guest {name}")).is_some_and(|condition| condition == "running") {
                let function = present.pfs[n].sriov.as_ref().unwrap().vfs[0].bdf;
                let found = FoundGuest { running: true, functions: vec![function], ..FoundGuest::default() };
                present.guests.insert(guest(name), found);
            }
        }
        present
    }

    /// What a reset leaves: files, and what a kernel starts with.
    pub fn after_reset(&self) -> World {
        let mut world = World::new();
        for n in 0..2 {
            world.insert(format!("vfs {}", pf(n)), "0".to_owned());
            world.insert(format!("mtu {}", pf(n)), "1500".to_owned());
        }
        let files = self.snapshot().into_iter().filter(|(key, _)| key.starts_with("file "));
        world.extend(files);
        world
    }

    pub fn run(&self, plan: &Plan, journal: &mut dyn Journal, mode: Mode) -> Result<Applied, ApplyError> {
        let options = Options { mode, deadline: Duration::from_millis(1), ..Options::default() };
        let (mut host, mut guests) = (self.clone(), self.clone());
        crate::run(plan, &mut Executors::new(&mut host, &mut guests), journal, &mut (), &options)
    }
}

fn make_vfs(world: &mut World, n: usize, count: usize) {
    world.insert(format!("vfs {}", pf(n)), count.to_string());
    world.retain(|key, _| {
        !key.starts_with(&format!("mac {} ", pf(n))) && !key.starts_with(&format!("driver {:02x}:10", n + 4))
    });
    for index in 0..count {
        world.insert(format!("mac {} {index}", pf(n)), "mac 00:00:00:00:00:00".to_owned());
        world.insert(format!("driver {:02x}:10.{index}", n + 4), "None".to_owned());
    }
}

fn number(at: Bdf) -> usize {
    (0..2).find(|n| pf(*n).to_string()[..7] == at.to_string()[..7]).unwrap()
}

fn driver_key(function: Bdf) -> String {
    format!("driver {:02x}:10.{}", number(function) + 4, function.to_string().chars().last().unwrap())
}

/// Which guest runs with VFs of which PF.
const USERS: [(&str, usize); 3] = [("a", 0), ("b", 1), ("old", 1)];

fn act(inner: &mut Inner, action: &Action) -> Result<(), &'static str> {
    if inner.refused.as_ref() == Some(action) {
        return Err("refused");
    }
    let world = &mut inner.world;
    let mut set = |key: String, value: String| drop(world.insert(key, value));
    match action {
        Action::Function(FunctionAction::SetAutoprobe { pf, on }) => {
            set(format!("autoprobe {pf}"), on.to_string())
        }
        Action::Function(FunctionAction::SetMtu { function, mtu }) => {
            set(format!("mtu {function}"), mtu.to_string())
        }
        Action::Function(FunctionAction::SetLink { function, direction }) => {
            set(format!("link {function}"), format!("{direction:?}"))
        }
        Action::Function(FunctionAction::SetVfCount { pf, count }) => {
            let n = number(*pf);
            for (guest, at) in USERS {
                let runs = inner.get(&format!("guest {guest}")) == Some("running");
                assert!(at != n || !runs, "VFs were taken away under {guest}");
            }
            let now: usize = inner.get(&format!("vfs {pf}")).unwrap().parse().unwrap();
            if now != usize::from(*count) && now != 0 && *count != 0 {
                return Err("EBUSY");
            }
            if now != usize::from(*count) {
                make_vfs(&mut inner.world, n, usize::from(*count));
            }
        }
        Action::Function(FunctionAction::SetVfAttribute { pf, vf, attribute }) => {
            let key = format!("mac {pf} {vf}");
            if inner.get(&key).is_none() {
                return Err("ENODEV");
            }
            inner.world.insert(key, attribute.to_string());
        }
        Action::Function(FunctionAction::SetDriver { function, driver, .. }) => {
            let key = driver_key(*function);
            if inner.get(&key).is_none() {
                return Err("ENODEV");
            }
            inner.world.insert(key, format!("{driver:?}"));
        }
        Action::Function(FunctionAction::ResetFunction { .. }) => {}
        Action::File(FileAction::WriteFile { path, text }) => set(format!("file {path}"), text.clone()),
        Action::File(FileAction::RemoveFile { path }) => drop(inner.world.remove(&format!("file {path}"))),
        Action::Guest(GuestAction::DefineGuest(definition)) => {
            set(format!("guest {}", definition.guest), "defined".to_owned())
        }
        Action::Guest(GuestAction::UndefineGuest { guest }) => {
            drop(inner.world.remove(&format!("guest {guest}")))
        }
        Action::Guest(GuestAction::StartGuest { guest }) => {
            let (_, at) = USERS.iter().find(|(name, _)| *name == guest.as_str()).unwrap();
            if inner.get(&format!("guest {guest}")).is_none()
                || inner.get(&format!("vfs {}", pf(*at))) == Some("0")
            {
                return Err("nothing to start it with");
            }
            inner.world.insert(format!("guest {guest}"), "running".to_owned());
        }
        Action::Guest(GuestAction::StopGuest { guest }) => {
            // Stopping what is not there is an error, as with a container.
            if inner.get(&format!("guest {guest}")) != Some("running") {
                return Err("it does not run");
            }
            inner.world.insert(format!("guest {guest}"), "defined".to_owned());
        }
        other => panic!("not in these tests: {other}"),
    }
    Ok(())
}

fn is_so(inner: &Inner, fact: &Fact) -> bool {
    let is = |key: String, value: String| inner.get(&key) == Some(&value);
    match fact {
        Fact::Autoprobe { pf, on } => is(format!("autoprobe {pf}"), on.to_string()),
        Fact::MtuIs { function, mtu } => is(format!("mtu {function}"), mtu.to_string()),
        Fact::Link { function, direction } => is(format!("link {function}"), format!("{direction:?}")),
        Fact::VfCount { pf, count } => is(format!("vfs {pf}"), count.to_string()),
        Fact::VfAttribute { pf, vf, attribute } => is(format!("mac {pf} {vf}"), attribute.to_string()),
        Fact::Driver { function, driver, .. } => is(driver_key(*function), format!("{driver:?}")),
        Fact::Reset { .. } => true,
        Fact::FileIs { path, text } => is(format!("file {path}"), text.clone()),
        Fact::NoFile { path } => inner.get(&format!("file {path}")).is_none(),
        Fact::GuestDefined { guest, defined } => inner.get(&format!("guest {guest}")).is_some() == *defined,
        Fact::GuestRunning { guest, running } => {
            (inner.get(&format!("guest {guest}")) == Some("running")) == *running
        }
        other => panic!("not in these tests: {other}"),
    }
}

impl<A: ActionGroup + Clone> Execute<A> for Machine {
    fn execute(&mut self, action: &A, _: Duration) -> Result<(), ExecuteError> {
        let action = &action.clone().into();
        let mut inner = self.0.borrow_mut();
        if !inner.event() {
            return Ok(());
        }
        act(&mut inner, action)
            .map_err(|why| ExecuteError::Failed { attempt: action.to_string(), source: why.into() })
    }
}

impl Observe for Machine {
    fn holds(&mut self, fact: &Fact) -> Result<Result<(), String>, ExecuteError> {
        let inner = self.0.borrow();
        // The dead do not wait.
        let so = inner.is_dead() || is_so(&inner, fact);
        Ok(if so { Ok(()) } else { Err("not so".to_owned()) })
    }

    fn is_there(&mut self, function: Bdf) -> Option<bool> {
        if (0..2).any(|n| pf(n) == function) {
            return Some(self.0.borrow().get(&format!("gone {function}")).is_none());
        }
        Some(self.0.borrow().get(&driver_key(function)).is_some())
    }

    fn vf_count(&mut self, pf: Bdf) -> Option<u16> {
        self.0.borrow().get(&format!("vfs {pf}"))?.parse().ok()
    }

    fn pf_of(&mut self, function: Bdf) -> Option<Bdf> {
        let bus = |of: Bdf| of.to_string()[..7].to_owned();
        (0..2).map(pf).find(|pf| *pf != function && bus(*pf) == bus(function))
    }

    fn file_is(&mut self, path: &str, text: Option<&str>) -> Option<bool> {
        Some(self.0.borrow().get(&format!("file {path}")) == text)
    }
}

/// A write: from which byte to which, and the machine at that time.
pub type Write = (usize, usize, World);

#[derive(Default)]
struct Reel {
    bytes: Vec<u8>,
    writes: Vec<Write>,
    synced: usize,
    full_after: Option<usize>,
}

/// A journal in memory, as bytes.
#[derive(Clone)]
pub struct Tape(Machine, Rc<RefCell<Reel>>);

impl Tape {
    pub fn new(machine: &Machine, bytes: Vec<u8>) -> Tape {
        Tape(machine.clone(), Rc::new(RefCell::new(Reel { bytes, ..Reel::default() })))
    }

    pub fn full_after(self, writes: usize) -> Tape {
        self.1.borrow_mut().full_after = Some(writes);
        self
    }

    /// As a file is opened anew: without the line that was cut off, and with room on the disk.
    pub fn reopened(&self) -> Tape {
        let mut reel = self.1.borrow_mut();
        let whole = reel.bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        reel.bytes.truncate(whole);
        reel.full_after = None;
        self.clone()
    }

    pub fn entries(&self) -> Vec<Entry> {
        let reel = self.1.borrow();
        let whole = reel.bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let lines = reel.bytes[..whole].split_inclusive(|b| *b == b'\n');
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    pub fn writes(&self) -> (Vec<u8>, Vec<Write>) {
        let reel = self.1.borrow();
        (reel.bytes.clone(), reel.writes.clone())
    }

    /// How many bytes are surely on the disk.
    pub fn synced(&self) -> usize {
        self.1.borrow().synced
    }
}

impl Journal for Tape {
    fn record(&mut self, entries: &[Entry], sync: bool) -> Result<(), JournalError> {
        let mut reel = self.1.borrow_mut();
        if reel.full_after.is_some_and(|most| reel.writes.len() >= most) {
            let source = io::ErrorKind::StorageFull.into();
            return Err(JournalError::Write { path: PathBuf::from("journal"), source });
        }
        if !self.0.0.borrow_mut().event() {
            return Ok(());
        }
        let from = reel.bytes.len();
        for entry in entries {
            serde_json::to_writer(&mut reel.bytes, entry).unwrap();
            reel.bytes.push(b'\n');
        }
        let to = reel.bytes.len();
        reel.writes.push((from, to, self.0.snapshot()));
        if sync {
            reel.synced = to;
        }
        Ok(())
    }
}

/// What it takes to make a machine as wanted, with inverses from what is: 8 VFs on each NIC with MACs and drivers, NICs up, a
/// file, and a guest on each.
pub fn plan_for(world: &World) -> Plan {
    let mut scratch = Inner { world: world.clone(), ..Inner::default() };
    let mut steps: Vec<Step> = Vec::new();
    let mut push = |scratch: &mut Inner,
                    action: Action,
                    inverse: Option<Action>,
                    needs: &BTreeSet<StepId>,
                    of: Option<&str>| {
        let id = StepId(steps.len() as u32 + 1);
        act(scratch, &action).unwrap();
        steps.push(Step {
            id,
            postcondition: Fact::after(&action),
            action,
            reason: "a test".to_owned(),
            needs: needs.iter().copied().collect(),
            inverse,
            best_effort: false,
            guest: of.map(guest),
        });
        id
    };
    for (n, (name, _)) in USERS.iter().take(2).enumerate() {
        let at = pf(n);
        let mut made = BTreeSet::new();
        let number = |scratch: &Inner, what: &str| scratch.get(&format!("{what} {at}")).unwrap().to_owned();
        if number(&scratch, "autoprobe") != "false" {
            let inverse = Some(FunctionAction::SetAutoprobe { pf: at, on: true }.into());
            made.insert(push(
                &mut scratch,
                FunctionAction::SetAutoprobe { pf: at, on: false }.into(),
                inverse,
                &made,
                None,
            ));
        }
        let count: u16 = number(&scratch, "vfs").parse().unwrap();
        if count != 8 {
            for (user, _) in USERS.iter().filter(|(_, used)| *used == n) {
                if scratch.get(&format!("guest {user}")) == Some("running") {
                    let inverse = Some(GuestAction::StartGuest { guest: guest(user) }.into());
                    made.insert(push(
                        &mut scratch,
                        GuestAction::StopGuest { guest: guest(user) }.into(),
                        inverse,
                        &made,
                        None,
                    ));
                }
            }
            if count != 0 {
                let inverse = Some(FunctionAction::SetVfCount { pf: at, count }.into());
                made.insert(push(
                    &mut scratch,
                    FunctionAction::SetVfCount { pf: at, count: 0 }.into(),
                    inverse,
                    &made,
                    None,
                ));
            }
            let inverse = Some(FunctionAction::SetVfCount { pf: at, count: 0 }.into());
            made.insert(push(
                &mut scratch,
                FunctionAction::SetVfCount { pf: at, count: 8 }.into(),
                inverse,
                &made,
                None,
            ));
        }
        let mtu = |bytes| FunctionAction::SetMtu { function: at, mtu: Mtu::new(bytes).unwrap() }.into();
        if number(&scratch, "mtu") != "9000" {
            push(&mut scratch, mtu(9000), Some(mtu(1500)), &BTreeSet::new(), None);
        }
        let link = |direction| FunctionAction::SetLink { function: at, direction }.into();
        if number(&scratch, "link") != "Up" {
            made.insert(push(&mut scratch, link(Direction::Up), Some(link(Direction::Down)), &made, None));
        }
        let mut of_vfs = made.clone();
        for index in 0..8_u16 {
            let mac = |text: String| {
                FunctionAction::SetVfAttribute {
                    pf: at,
                    vf: VfIndex::new(index).unwrap(),
                    attribute: VfAttribute::Mac(text.parse().unwrap()),
                }
                .into()
            };
            let wanted = format!("02:00:00:00:0{n}:0{index}");
            let found =
                scratch.get(&format!("mac {at} {index}")).unwrap().trim_start_matches("mac ").to_owned();
            if found != wanted {
                of_vfs.insert(push(&mut scratch, mac(wanted), Some(mac(found)), &made, None));
            }
        }
        for index in 0..8 {
            let bind = |driver: Option<&str>| {
                FunctionAction::SetDriver {
                    function: vf(n, index),
                    driver: driver.map(str::to_owned),
                    mac: None,
                }
                .into()
            };
            if scratch.get(&driver_key(vf(n, index))) == Some("None") {
                let reset = FunctionAction::ResetFunction { function: vf(n, index) }.into();
                of_vfs.insert(push(&mut scratch, reset, None, &of_vfs, None));
                of_vfs.insert(push(&mut scratch, bind(Some("vfio-pci")), Some(bind(None)), &of_vfs, None));
            }
        }
        if n == 0 && scratch.get(&format!("file {FILE}")).is_none() {
            let write = FileAction::WriteFile { path: FILE.to_owned(), text: "text".to_owned() }.into();
            let inverse = Some(FileAction::RemoveFile { path: FILE.to_owned() }.into());
            of_vfs.insert(push(&mut scratch, write, inverse, &BTreeSet::new(), None));
        }
        if scratch.get(&format!("guest {name}")).is_none() {
            let inverse = Some(GuestAction::UndefineGuest { guest: guest(name) }.into());
            let define = GuestAction::DefineGuest(definition(name)).into();
            of_vfs.insert(push(&mut scratch, define, inverse, &of_vfs, Some(name)));
        }
        if scratch.get(&format!("guest {name}")) != Some("running") {
            let inverse = Some(GuestAction::StopGuest { guest: guest(name) }.into());
            push(
                &mut scratch,
                GuestAction::StartGuest { guest: guest(name) }.into(),
                inverse,
                &of_vfs,
                Some(name),
            );
        }
    }
    Plan { steps, ..Plan::default() }
}

fn definition(name: &str) -> GuestDefinition {
    GuestDefinition::bare(guest(name))
}
