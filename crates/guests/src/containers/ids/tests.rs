use super::*;

/// A machine with `/etc/subuid` and `/etc/subgid`.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(users: &str, groups: &str) -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        files::create_dir_all(machine.0.path().join("etc")).unwrap();
        for (path, text) in PATHS.iter().zip([users, groups]) {
            files::write_atomic(machine.root().path(path), text).unwrap();
        }
        machine
    }

    fn root(&self) -> Root {
        Root::at(self.0.path())
    }

    fn file(&self) -> std::path::PathBuf {
        self.root().path(FILE)
    }

    /// What a container is given, which stays.
    fn given(&self, guest: &str) -> Result<Ids, GuestError> {
        let guest = guest.parse().unwrap();
        let ids = of_container(&self.root(), &self.file(), &guest)?;
        assert_eq!(of_container(&self.root(), &self.file(), &guest).unwrap(), ids, "{guest}: the same again");
        Ok(ids)
    }

    fn why(&self, guest: &str) -> String {
        self.given(guest).unwrap_err().to_string()
    }

    fn texts(&self) -> [String; 2] {
        read(&self.root()).unwrap()
    }
}

#[test]
fn ranges_of_roots_are_used_and_the_files_stay() {
    let (users, groups) = ("me:100000:65536\nroot:1000000:1000000000\n", "0:2000000:655360\n");
    let machine = Machine::new(users, groups);
    let ids = machine.given("box").unwrap();
    assert!((1_000_000..1_001_000_000 - COUNT).contains(&ids.user), "{ids:?}");
    assert!((2_000_000..2_655_360).contains(&ids.group), "{ids:?}");
    assert_eq!(machine.texts(), [users, groups]);
    // The name alone decides, and not who came first.
    let other = Machine::new(users, groups);
    other.given("tool").unwrap();
    assert_eq!(other.given("box").unwrap(), ids);
}

#[test]
fn no_two_containers_share_an_id() {
    let machine = Machine::new("root:500000:655360\n", "root:500000:655360\n");
    // Ten in the first range, more in one that is entered.
    let all: Vec<Ids> = (0..40).map(|n| machine.given(&format!("box-{n}")).unwrap()).collect();
    for (position, ids) in all.iter().enumerate() {
        for other in &all[..position] {
            assert!(
                ids.user.abs_diff(other.user) >= COUNT && ids.group.abs_diff(other.group) >= COUNT,
                "{all:?}"
            );
        }
    }
    assert_eq!(all.iter().filter(|ids| ids.user < 500_000 + 10 * COUNT).count(), 10);
    let one_more = "root:500000:655360\nroot:1179648:67108864\n";
    assert_eq!(machine.texts(), [one_more, one_more]);
}

#[test]
fn a_missing_range_is_entered_where_nobody_has_one() {
    let machine = Machine::new("", "");
    assert!(machine.given("box").unwrap().user >= FIRST);
    assert_eq!(machine.texts(), ["root:1048576:67108864\n", "root:1048576:67108864\n"]);
    // Others' ranges in either file, one that is too small, and a last line without its end.
    let machine = Machine::new("me:1048576:65536\nroot:500000:100", "me:1114112:1");
    machine.given("box").unwrap();
    assert_eq!(
        machine.texts(),
        [
            "me:1048576:65536\nroot:500000:100\nroot:1179648:67108864\n",
            "me:1114112:1\nroot:1179648:67108864\n"
        ]
    );
    // Room for two.
    let machine = Machine::new("me:1179648:4294967295\n", "");
    let two = [machine.given("a").unwrap(), machine.given("b").unwrap()];
    assert_eq!(two[0].user.abs_diff(two[1].user), COUNT);
    assert!(machine.why("c").contains("no 65536 ids in a row are free"));
}

#[test]
fn the_hosts_root_is_never_among_them() {
    for hostile in
        ["root:0:65536\n", "root:4294967295:65536\n", "root:-1:65536\n", "root:x:y\n", "root:1:0\n"]
    {
        let ids = Machine::new(hostile, hostile).given("box");
        assert!(ids.as_ref().is_ok_and(|ids| ids.user >= FIRST && ids.group >= FIRST), "{hostile} {ids:?}");
    }
    let wide = "root:1:18446744073709551615\n";
    let ids = Machine::new(wide, wide).given("box").unwrap();
    assert!(ids.user <= LAST - COUNT && ids.group <= LAST - COUNT, "{ids:?}");
}

#[test]
fn full_files_are_said() {
    let machine = Machine::new("me:100000:4294967295\n", "");
    assert!(machine.why("box").contains("no 65536 ids in a row are free"));
}

#[test]
fn ids_that_a_container_has_had_are_entered_again_on_a_machine_that_was_installed_anew() {
    let machine = Machine::new("", "");
    let ids = machine.given("box").unwrap();
    for (users, groups) in [
        ("", ""),
        // In one of the two; what others have beside it; a range of root's that has a part of it.
        ("root:1048576:67108864\n", "me:100000:65536\n"),
        ("me:1000:1000", "you:100000:65536\nroot:1000000:100000\n"),
    ] {
        for (path, text) in PATHS.iter().zip([users, groups]) {
            files::write_atomic(machine.root().path(path), text).unwrap();
        }
        assert_eq!(machine.given("box").unwrap(), ids, "{users:?} {groups:?}");
        for ((text, before), first) in machine.texts().iter().zip([users, groups]).zip(ids.firsts()) {
            assert!(is_roots(text, first) && text.starts_with(before), "{text}");
            assert!(before != "root:1048576:67108864\n" || text == before, "{text}: that was enough");
        }
    }
    // The next container has none of them.
    let other = machine.given("tool").unwrap();
    assert!(other.user.abs_diff(ids.user) >= COUNT && other.group.abs_diff(ids.group) >= COUNT);
}

#[test]
fn ids_that_somebody_else_has_by_now_are_refused_with_the_owner_and_nothing_is_written() {
    let machine = Machine::new("", "");
    let ids = machine.given("box").unwrap();
    let last = ids.user + COUNT - 1;
    let theirs = format!("root:1000000:20\nmara:{last}:65536\n");
    for (users, groups, path) in [(&*theirs, "", "/etc/subuid"), ("", &*theirs, "/etc/subgid")] {
        for (path, text) in PATHS.iter().zip([users, groups]) {
            files::write_atomic(machine.root().path(path), text).unwrap();
        }
        let why = machine.why("box");
        let wanted =
            format!("{COUNT} ids from {} on, which are not root's in /etc/subuid any more", ids.user);
        let owner = format!("mara has 65536 from {last} on in {path}");
        for part in [wanted, owner, "container-ids".to_owned()] {
            assert!(why.contains(&part), "{part}: {why}");
        }
        assert_eq!(machine.texts(), [users, groups]);
    }
}

#[test]
fn a_damaged_list_is_said_with_its_line() {
    for (text, wanted) in [
        ("box:1048576\n", "line 1: \"box:1048576\" is not NAME"),
        ("# x\nbox:0:1048576\n", "line 2: \"box:0:1048576\" is not NAME"),
        ("a:1048576:1048576\nb:1048577:2097152\n", "line 2: b shares its name or its ids with a"),
        ("a:1048576:1048576\na:3048576:3097152\n", "line 2: a shares its name or its ids with a"),
    ] {
        let machine = Machine::new("", "");
        files::create_dir_all(machine.file().parent().unwrap()).unwrap();
        files::write_atomic(machine.file(), text).unwrap();
        let why = machine.why("c");
        assert!(why.contains(wanted), "{why}");
    }
}

/// Whoever was killed at it was a start of this container, or one that is taken back.
#[test]
fn nothing_is_left_of_whoever_was_killed_while_giving_ids_away() {
    let machine = Machine::new("", "");
    let leave = || {
        let places = written(&machine.root(), &machine.file());
        places.map(|path| {
            files::create_dir_all(path.parent().unwrap()).unwrap();
            let part = |writer: &str| path.with_extension(format!("{writer}.0123456789abcdef.part"));
            let (dead, alive) = (part("4194305"), part("1"));
            [&dead, &alive].iter().for_each(|part| files::write_atomic(part, "half").unwrap());
            (dead, alive)
        })
    };
    for way in [
        |machine: &Machine| drop(machine.given("box")),
        |machine: &Machine| {
            tidy(&machine.root(), &machine.file()).unwrap();
        },
    ] {
        let parts = leave();
        way(&machine);
        for (dead, alive) in parts {
            assert!(!files::exists(&dead) && files::exists(&alive), "{}", dead.display());
        }
    }
}

/// `useradd` has read the file, and writes it while a container is given its ids: neither's line is lost.
#[test]
fn what_another_program_enters_meanwhile_stays() {
    let machine = Machine::new("", "");
    let [path, lock] = ["/etc/subuid", "/etc/subuid.lock"].map(|path| machine.root().path(path));
    // Process 1 lives.
    files::write_atomic(&lock, "1\0").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let read = files::read_to_string(&path).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            files::write_atomic(&path, format!("{read}me:1048576:65536\n")).unwrap();
            files::remove_file(&lock).unwrap();
        });
        machine.given("box").unwrap();
    });
    let [users, groups] = machine.texts();
    assert_eq!(users, "me:1048576:65536\nroot:1114112:67108864\n");
    assert_eq!(groups, "root:1114112:67108864\n");
    let mut names = files::list(machine.root().path("/etc")).unwrap();
    names.sort_unstable();
    assert_eq!(names, [".pwd.lock", "subgid", "subuid"]);
}
