//! Whether a container is confined as it should be: what the kernel says of its first process, and what a program inside
//! gets when it tries.
//!
//! What the kernel says is read on the host and cannot be forged from inside. What is tried is tried by a shell inside, and
//! opens files without reading on or writing anything.

use penstock_host::{Command, Place, Root, files};
use penstock_model::{
    Guest, GuestName, Outcome, Root as GuestRoot, Verdict,
    verdict::{Subject, Vantage},
};

use super::{apparmor, confinement, place::ContainerPlace};

/// Files of the host that a container must not read, and those that it must not write; a shell's patterns. The first two
/// matter with the default root: a root directory of its own may have such files of its own.
const SECRETS: &str = "/etc/shadow /etc/ssh/ssh_host_*_key";
const READ: &str = "/proc/kcore /proc/kmsg /proc/bus/pci/*/*";
const WRITTEN: &str = "/proc/irq/*/smp_affinity /proc/irq/default_smp_affinity /proc/bus/pci/*/* /proc/sys/kernel/core_pattern \
                       /proc/sys/kernel/modprobe /proc/sys/vm/drop_caches /proc/sysrq-trigger /sys/kernel/uevent_helper \
                       /sys/bus/pci/rescan /sys/bus/pci/devices/*/config";

/// What the shell says when it has come to its end: without it, nothing has been proven.
const TRIED: &str = "tried";

/// Before the exit status of what was to make a user namespace, or that the kernel does not permit it.
const NAMESPACE: &str = "user namespace: ";

/// How many paths a verdict names.
const NAMED: usize = 4;

/// One verdict for each fence: read from the kernel where `pid` is the first process, and tried in `place`.
pub fn verdicts(
    root: &Root,
    guest: &GuestName,
    pid: &Result<u32, String>,
    place: Option<&ContainerPlace>,
    wanted: &Guest,
) -> Vec<Verdict> {
    let own_root = wanted.root != GuestRoot::Overlay;
    let read = |file: &str| {
        let path = root.path(format!("/proc/{}/{file}", pid.clone()?));
        files::read_to_string(path).map_err(|error| error.to_string())
    };
    let subject = || Subject::Guest(guest.clone());
    let fence = |item: &str, wanted: &str, seen: Result<(String, bool), String>| {
        Verdict::of_host(subject(), "confinement", format!("{item}: {wanted}"), seen).of_item(item)
    };
    let status = read("status");
    let field = |name: &str| {
        let text = status.as_ref().map_err(String::clone)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned()).ok_or_else(|| format!("the kernel does not say {name}"))
    };
    let switch = |on| if on { "on" } else { "off" };
    let ids = read("uid_map").and_then(|users| Ok((users, read("gid_map")?)));
    let namespace = ids.and_then(|(users, groups)| {
        let (user, group) = (root_outside(&users)?, root_outside(&groups)?);
        let is = user == 0 || group == 0;
        let seen = match is {
            true => "on: its root is the host's".to_owned(),
            false => format!("off: its root is user {user} of the host, group {group}"),
        };
        Ok((seen, is == wanted.privileged))
    });
    let capabilities = field("CapBnd").and_then(|bound| Ok((number(&bound)?, number(&field("CapEff")?)?)));
    let capabilities = capabilities.map(|(bound, effective)| {
        let more = (bound | effective) & !confinement::most_capabilities(own_root);
        match more {
            0 => (format!("{bound:#x} at the most"), true),
            more => (format!("{bound:#x} at the most, of which {more:#x} are too many"), false),
        }
    });
    let filter = field("Seccomp").map(|mode| match mode.as_str() {
        "2" => ("a filter".to_owned(), true),
        "0" => ("none".to_owned(), false),
        other => (format!("mode {other}"), false),
    });
    let gains_nothing = confinement::gains_nothing(wanted.privileged, own_root);
    let gains = field("NoNewPrivs")
        .map(|set| (switch(set == "1").to_owned(), (set == "1") == gains_nothing || set == "1"));
    let mut verdicts = vec![
        Verdict::of_host(subject(), "privileged", switch(wanted.privileged).to_owned(), namespace),
        fence("capabilities", "those that it needs", capabilities),
        fence("system calls", "a filter", filter),
        fence("no new privileges", switch(gains_nothing), gains),
    ];
    // What a machine cannot do is said, and lets the whole hold: the other fences stand.
    verdicts.extend(apparmor::seen(root, guest, pid).map(|(seen, outcome)| Verdict {
        outcome,
        best_effort: true,
        ..fence("AppArmor", "a profile", Ok((seen, true)))
    }));
    let tried = place.map_or_else(
        || Err(pid.clone().err().unwrap_or_else(|| "the guest does not run".to_owned())),
        |place| tried(place, own_root),
    );
    let inside = |verdict| Verdict { vantage: Vantage::Guest(guest.clone()), ..verdict };
    let opened = tried.as_ref().map(|tried| opened(&tried.opened)).map_err(String::clone);
    verdicts.push(inside(fence("files of the host", "out of reach", opened)));
    if !confinement::makes_namespaces(wanted.privileged, own_root) {
        let made = tried.map(|tried| tried.namespace);
        verdicts.push(inside(match made {
            Ok(Namespace::NotTried) => Verdict {
                outcome: Outcome::Unsupported,
                best_effort: true,
                ..fence(
                    "user namespaces",
                    "refused",
                    Ok(("not tried: it has no program unshare that runs".to_owned(), true)),
                )
            },
            Ok(Namespace::Made) => {
                fence("user namespaces", "refused", Ok(("one was made".to_owned(), false)))
            }
            Ok(Namespace::Failed) => fence(
                "user namespaces",
                "refused",
                Err("unshare failed inside, and not because it is not permitted".to_owned()),
            ),
            Ok(Namespace::Refused) => fence("user namespaces", "refused", Ok(("refused".to_owned(), true))),
            Err(why) => fence("user namespaces", "refused", Err(why)),
        }));
    }
    verdicts
}

/// The host's id of a container's 0, from `/proc/PID/uid_map` or `gid_map` (`user_namespaces(7)`). The host's own 0 counts,
/// wherever it is mapped to.
fn root_outside(map: &str) -> Result<u64, String> {
    let odd = || format!("the kernel's map of ids cannot be parsed: {map:?}");
    let mut outside = None;
    for line in map.lines() {
        let numbers: Option<Vec<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        match numbers.as_deref() {
            Some([_, 0, count]) if *count > 0 => return Ok(0),
            Some([0, first, _]) => outside = Some(*first),
            Some([..]) => {}
            None => return Err(odd()),
        }
    }
    outside.ok_or_else(odd)
}

fn number(mask: &str) -> Result<u64, String> {
    u64::from_str_radix(mask, 16).map_err(|_| format!("the kernel's capabilities cannot be parsed: {mask:?}"))
}

/// What a shell inside came to.
#[derive(Debug, PartialEq, Eq)]
struct Tried {
    /// What it could open of the host's files: `reads PATH`, `writes PATH`.
    opened: Vec<String>,
    namespace: Namespace,
}

/// What became of a user namespace that `unshare` was to make.
#[derive(Debug, PartialEq, Eq)]
enum Namespace {
    Refused,
    /// None was made, and not because none may be: there are too many, or the program broke off.
    Failed,
    Made,
    /// There is no such program, or it does not run.
    NotTried,
}

/// Has a shell inside try.
fn tried(place: &ContainerPlace, own_root: bool) -> Result<Tried, String> {
    let read = if own_root { READ.to_owned() } else { format!("{SECRETS} {READ}") };
    let script = format!(
        "for file in {read}; do\n\
             x=; {{ read -r x <\"$file\"; }} 2>/dev/null; [ -z \"$x\" ] || echo \"reads $file\"\n\
         done\n\
         for file in {WRITTEN}; do\n\
             [ -e \"$file\" ] || continue\n\
             ( : >>\"$file\" ) 2>/dev/null && echo \"writes $file\"\n\
         done\n\
         if unshare --help >/dev/null 2>&1; then\n\
             said=$(unshare -U /bin/sh -c : 2>&1); status=$?\n\
             case $said in *'Operation not permitted'*) status=EPERM;; esac\n\
             echo \"{NAMESPACE}$status\"\n\
         fi\n\
         echo {TRIED}"
    );
    let output = place.run(&Command::new("/bin/sh").args(["-c", &script]).env("LC_ALL", "C"));
    let output = output.map_err(|error| penstock_host::chain(&error))?;
    let (said, errors) = (output.text(), output.errors());
    judge(&said).map_err(|why| not_inside(output.status.success(), &said, &errors).unwrap_or(why))
}

/// Why no shell ran inside, of one that failed before it said anything: in words of what was to run it there, as for want of a permission.
fn not_inside(success: bool, said: &str, errors: &str) -> Option<String> {
    let why = errors.lines().map(str::trim).find(|line| !line.is_empty())?;
    (!success && said.is_empty())
        .then(|| format!("a shell inside could not be run: {}", crate::words::printable(why)))
}

/// What the shell said.
fn judge(said: &str) -> Result<Tried, String> {
    let mut lines: Vec<&str> = said.lines().collect();
    if lines.pop() != Some(TRIED) {
        return Err("a shell inside did not come to its end".to_owned());
    }
    let namespace = match lines.last().and_then(|line| line.strip_prefix(NAMESPACE)) {
        None | Some("126" | "127") => Namespace::NotTried,
        Some("0") => Namespace::Made,
        Some("EPERM") => Namespace::Refused,
        Some(_) => Namespace::Failed,
    };
    lines.retain(|line| !line.starts_with(NAMESPACE));
    Ok(Tried { opened: lines.into_iter().map(str::to_owned).collect(), namespace })
}

fn opened(opened: &[String]) -> (String, bool) {
    if opened.is_empty() {
        return ("none could be opened".to_owned(), true);
    }
    let more = opened.len().saturating_sub(NAMED);
    let mut text: Vec<String> =
        opened.iter().take(NAMED).map(|line| crate::words::printable(line).to_string()).collect();
    if more > 0 {
        text.push(format!("and {more} more"));
    }
    (format!("it {}", text.join(", ")), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_root_is_found_wherever_it_is_mapped_to() {
        assert_eq!(root_outside("         0    1048576      65536\n"), Ok(1_048_576));
        assert_eq!(root_outside("0 0 4294967295\n"), Ok(0));
        assert_eq!(root_outside("0 1048576 1\n1 0 1\n"), Ok(0), "its user 1 is the host's root");
        assert_eq!(root_outside("0 1048576 10\n1000 1000 1\n"), Ok(1_048_576));
        for odd in ["", "x", "1 5 1\n", "0 -1 5"] {
            assert!(root_outside(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn who_may_not_run_a_shell_inside_is_told_that_and_not_of_the_shell() {
        let refused = "\nlxc-attach: penstock-web: Permission denied - Failed to open\nlxc-attach: more\n";
        let wanted =
            "a shell inside could not be run: lxc-attach: penstock-web: Permission denied - Failed to open";
        assert_eq!(not_inside(false, "", refused).as_deref(), Some(wanted));
        assert_eq!(not_inside(false, "reads /proc/kcore\n", refused), None, "it ran, and broke off");
        assert_eq!(not_inside(true, "", refused), None);
        assert_eq!(not_inside(false, "", " \n"), None);
    }

    #[test]
    fn a_shell_that_did_not_end_proves_nothing() {
        assert!(judge("").is_err());
        assert!(judge("reads /proc/kcore\n").is_err());
        assert!(judge("user namespace: 1\n").is_err());
        let nothing = Tried { opened: Vec::new(), namespace: Namespace::NotTried };
        assert_eq!(judge("tried\n").unwrap(), nothing);
        assert_eq!(opened(&[]), ("none could be opened".to_owned(), true));
        let tried =
            judge("reads /a\nwrites /b\nwrites /c\nwrites /d\nwrites /e\nuser namespace: EPERM\ntried\n")
                .unwrap();
        assert_eq!(tried.namespace, Namespace::Refused);
        let (seen, holds) = opened(&tried.opened);
        assert_eq!(
            (seen.as_str(), holds),
            ("it reads /a, writes /b, writes /c, writes /d, and 1 more", false)
        );
        for (status, namespace) in [
            ("0", Namespace::Made),
            ("127", Namespace::NotTried),
            ("EPERM", Namespace::Refused),
            ("1", Namespace::Failed),
        ] {
            assert_eq!(judge(&format!("user namespace: {status}\ntried\n")).unwrap().namespace, namespace);
        }
    }
}
