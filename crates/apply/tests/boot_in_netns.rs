//! What is done for the next start of a machine, by GRUB's own tools in a root directory of its own.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
};

use nix::sched::{CloneFlags, unshare};
use penstock_apply::{HostExecutor, Mode, Options, journal::Entry, run};
use penstock_host::{Command, Root, boot::entries, scan::boot::setup};
use penstock_model::{Inventory, Model, Source, inventory::BootLoader};
use penstock_plan::{
    Executors, Plan, boot_needs,
    persist::{self, Persisted, UNIT_DIRECTORY, WANTED_BY, Wanted},
    undo,
};
use penstock_testkit::{
    grub::{self, Machine},
    trials::Trials,
};

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("GRUB's tools", grub::lacking);
    trials
        .add(&missing, [("grub_merges_our_words_and_gives_them_up_in_netns", grub_merges_our_words as fn())]);
    trials.run()
}

const MODEL: &str = "nics: {NET0: {vfs: 1}}\nguests: {big: {kind: vm, memory: PAGESGiB, huge_pages: 1GiB}}\n";

fn model(pages: u32) -> (Model, String) {
    let text = MODEL.replace("PAGES", &pages.to_string());
    (penstock_model::parse(&Source::new("m.yaml", text.as_str())).unwrap().model, text)
}

/// What there is to do on the machine under `root` for a VM of so many huge pages.
fn to_do(root: &Root, pages: u32) -> Persisted {
    let (model, text) = model(pages);
    let needs = boot_needs(&model, &Inventory::default());
    let mut found = setup(root, &persist::paths(), &format!("{UNIT_DIRECTORY}/{WANTED_BY}.wants")).unwrap();
    assert!(matches!(found.loader, Some(BootLoader::Grub { .. })), "{:?}", found.loader);
    found.entries = entries(root, found.loader.as_ref().unwrap()).unwrap();
    let program = "/usr/bin/penstock";
    let waits = std::time::Duration::ZERO;
    let wanted = Wanted {
        model: &model,
        text: &text,
        program,
        search_path: None,
        options: &[],
        needs: &needs,
        waits,
        cut_off: None,
    };
    persist::persist(&wanted, &found)
}

fn carry_out(root: &Root, plan: &Plan, mode: Mode) {
    let mut host = HostExecutor::new(root.clone()).unwrap();
    let mut executors = Executors::of_host(&mut host);
    let mut journal: Vec<Entry> = Vec::new();
    let options = Options { mode, ..Options::default() };
    run(plan, &mut executors, &mut journal, &mut (), &options).unwrap_or_else(|error| panic!("{error:?}"));
}

/// Every file and link below `/etc` and `/boot` that somebody has changed since the machine was made, as a shell sees it.
fn files(root: &Path) -> BTreeMap<PathBuf, String> {
    let upper = root.parent().unwrap().join("upper");
    let found = Command::new("find").arg(&upper).args(["(", "-type", "f", "-o", "-type", "l", ")"]).succeed();
    let paths = found.unwrap().text();
    let read = |path: &Path| {
        fs::read_link(path).map_or_else(
            |_| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned(),
            |target| target.display().to_string(),
        )
    };
    paths.lines().map(|path| (PathBuf::from(path), read(Path::new(path)))).collect()
}

fn grub_merges_our_words() {
    let work = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let machine = Machine::new();
        let (root, place) = (Root::at(machine.root()), machine.root());
        Command::new("chroot").arg(&place).arg("update-grub").succeed().unwrap();
        let before = files(&place);
        assert!(machine.command_line().ends_with("quiet"), "{}", machine.command_line());

        let first = to_do(&root, 2);
        carry_out(&root, &first.plan, Mode::Apply);
        let line = machine.command_line();
        assert!(line.ends_with("quiet hugepagesz=1G hugepages=2"), "{line}");
        assert_eq!(to_do(&root, 2), Persisted::default(), "the second time there is something to do");
        let menu = fs::read_to_string(place.join("boot/grub/grub.cfg")).unwrap();
        let rescue = menu.lines().filter(|line| line.contains("single"));
        assert!(
            rescue.clone().count() > 0 && rescue.clone().all(|line| !line.contains("hugepages")),
            "{menu}"
        );

        let second = to_do(&root, 3);
        carry_out(&root, &second.plan, Mode::Apply);
        let line = machine.command_line();
        assert!(line.ends_with("quiet hugepagesz=1G hugepages=3"), "{line}");

        // Killed after the file was put back and before the menu was made: it is not taken for done.
        let drop_in = place.join("etc/default/grub.d/penstock.cfg");
        let with_three = fs::read_to_string(&drop_in).unwrap();
        fs::write(&drop_in, with_three.replace("hugepages=3", "hugepages=2")).unwrap();
        carry_out(&root, &undo(&second.plan), Mode::Undo);
        assert!(machine.command_line().ends_with("hugepages=2"), "{}", machine.command_line());

        carry_out(&root, &undo(&first.plan), Mode::Undo);
        assert_eq!(files(&place), before);
    };
    thread::spawn(work).join().unwrap();
}
