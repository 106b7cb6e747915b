//! What a place is lent for a run: addresses, neighbours, servers. It is lent for a while, and renewed while the run goes on:
//! the kernel takes the addresses back by itself (`valid_lft`), and a keeper in the place the rest, so that a Penstock that is
//! killed leaves nothing for long.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use penstock_host::{Command, Output, process::quoted};
use penstock_model::Mac;

use super::{addresses::LENGTH, container::SampleContainer};

/// The variable in the environment of every process that a run starts in a place: by it they are found and ended, also
/// those that outlived the command that started them, and never a stranger that has a process id anew.
pub const MARK: &str = "PENSTOCK_MEASURE";

/// How much longer addresses last than their keeper: what is lent later never meets a keeper of the same address.
const SLACK: u64 = 10;

/// Between what is left and why.
const SAID: &str = " because ip said:";

/// What a place is lent.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    /// What tells this run's processes there from all others.
    pub mark: String,
    /// Addresses, each with the one at the other end.
    pub addresses: Vec<Address>,
    /// Servers of measuring tools, which listen in the place while the lease lasts.
    pub servers: Vec<Server>,
    /// Links that were made there for the run, with what their alias says (`ip link set alias`).
    pub links: Vec<TestLink>,
    /// Containers that are made there for samples; each is there during one.
    pub containers: Vec<SampleContainer>,
}

/// An address, and the one that it is to reach.
#[derive(Clone, Debug)]
pub struct Address {
    /// Name of the interface that gets the address.
    pub interface: String,
    /// Whether the interface was made for the run, and has to be set up first.
    pub fresh: bool,
    /// The address that the interface gets.
    pub own: Ipv4Addr,
    /// The other end's.
    pub peer: Ipv4Addr,
    /// The other end's MAC address. It is never asked for: where several interfaces of a guest hang on one network each
    /// answers for all of its addresses, and the traffic would cross another one than was meant.
    pub peer_mac: Mac,
}

/// A measuring tool's server that runs in a place while the lease lasts.
#[derive(Clone, Debug)]
pub struct Server {
    /// How it is started.
    pub command: Command,
    /// Where it listens.
    pub at: SocketAddrV4,
    /// Whether by UDP.
    pub udp: bool,
    /// A process whose network namespace it listens in, where that is not the place's own.
    pub namespace: Option<u32>,
}

/// A link that was made for a run.
#[derive(Clone, Debug)]
pub struct TestLink {
    /// Name of the interface.
    pub name: String,
    /// Its alias: a link of this name with another alias is somebody else's, and is left alone.
    pub alias: String,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// In which run of its kernel the place was lent it; `None` where that cannot be told.
    pub boot: Option<String>,
    /// Addresses that could not be set, by position, with what was said.
    pub failed: BTreeMap<usize, String>,
    /// Servers that listen, by position.
    pub listening: BTreeSet<usize>,
    /// What those said that ended instead, by position.
    pub said: BTreeMap<usize, String>,
}

impl Lease {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
            && self.servers.is_empty()
            && self.links.is_empty()
            && self.containers.is_empty()
    }

    /// The variable by which clients in this place are marked.
    pub fn client_mark(&self) -> String {
        format!("{}-client;", self.mark)
    }

    fn server_mark(&self) -> String {
        format!("{}-server;", self.mark)
    }

    /// The command that lends it, or lends it `again`, and gives the servers `timeout` to listen.
    pub fn grant(&self, lasting: Duration, timeout: Duration, again: bool) -> Command {
        // A shell's own words wherever it has them, and one `ip` for all: on a slow machine a new process is dear.
        let mut script = SAY_BOOT.to_owned();
        if again {
            script.push_str(&sweep(&self.server_mark()));
        }
        script.push_str("\"$ip\" -force -batch - 2>&1 <<'END'\n");
        for line in self.batch(lasting) {
            let _ = writeln!(script, "{line}");
        }
        script.push_str("END\n");
        let _ = writeln!(
            script,
            "s=$(command -v setsid)\n{MARK}={} $s sh -c {} penstock-measure </dev/null >/dev/null 2>&1 &\nk=$!",
            quoted(&self.server_mark()),
            quoted(&self.keeper(lasting))
        );
        script.push_str(&self.wait(timeout));
        shell(&script).deadline(timeout * 2 + Duration::from_secs(20))
    }

    /// Three lines for `ip` for each address.
    fn batch(&self, lasting: Duration) -> Vec<String> {
        let last = lasting.as_secs() + SLACK;
        let lines = self.addresses.iter().flat_map(|address| {
            let Address { interface, own, peer, peer_mac, .. } = address;
            let up =
                if address.fresh { format!("link set dev {interface} up") } else { "# it is up".to_owned() };
            let lifetime = format!("valid_lft {last} preferred_lft {last}");
            [
                up,
                format!("address replace {own}/{LENGTH} dev {interface} {lifetime}"),
                format!("neigh replace {peer} lladdr {peer_mac} dev {interface} nud permanent"),
            ]
        });
        lines.collect()
    }

    /// What runs in the place meanwhile.
    fn keeper(&self, lasting: Duration) -> String {
        let mut script = format!("{FIND_IP}p=\n");
        for server in &self.servers {
            let _ = writeln!(script, "{} & p=\"$p $!\"", server.command);
        }
        let _ = writeln!(script, "sleep {}\n[ -z \"$p\" ] || kill -9 $p", lasting.as_secs());
        let forget = ip(self.forgetting());
        if !forget.is_empty() {
            let _ = writeln!(script, "f=$({forget})");
        }
        self.remove_links(&mut script);
        script.push_str(&SampleContainer::take_all_back(&self.containers));
        script.push_str("exit 0\n");
        script
    }

    /// What `ip` is told so that the other ends are forgotten. Not `neigh del`: one that is forgotten already would end the
    /// whole batch there, `-force` or not.
    fn forgetting(&self) -> Vec<String> {
        let forget = |a: &Address| format!("neigh flush to {} dev {} nud permanent", a.peer, a.interface);
        self.addresses.iter().map(forget).collect()
    }

    /// Removes the links that were made for this run.
    fn remove_links(&self, script: &mut String) {
        for TestLink { name, alias } in &self.links {
            let _ = writeln!(
                script,
                "{} && \"$ip\" link del dev {name} 2>/dev/null",
                is_made(name, &quoted(alias))
            );
        }
    }

    /// Waits until every server listens, and says which do.
    fn wait(&self, timeout: Duration) -> String {
        let mut tables = String::from("/proc/net/tcp /proc/net/udp");
        for process in self.servers.iter().filter_map(|server| server.namespace).collect::<BTreeSet<_>>() {
            let _ = write!(tables, " /proc/{process}/net/tcp /proc/{process}/net/udp");
        }
        let patterns: Vec<String> = self.servers.iter().map(Server::pattern).collect();
        let last = timeout.as_secs().max(1);
        let mut script = format!(
            "now() {{ read -r up rest </proc/uptime; up=${{up%.*}}; }}\nnow; end=$((up+{last}))\n\
             while :; do t=$(cat {tables}); n=0\n"
        );
        for pattern in &patterns {
            let _ = writeln!(script, "case \"$t\" in *{}*) n=$((n+1)) ;; esac", quoted(pattern));
        }
        let servers = patterns.len();
        // The keeper's last child is its sleep, once all servers were started; one that ended is not waited for.
        let _ = writeln!(
            script,
            "[ $n = {servers} ] && break; now; [ $up -gt $end ] && break; sleep 0.1\n\
             c=; {{ read -r c </proc/$k/task/$k/children; }} 2>/dev/null; set -- $c; l=; for l; do :; done\n\
             {{ read -r l </proc/$l/comm; }} 2>/dev/null\n\
             [ \"$l\" = sleep ] && [ $(($# - 1)) -le $n ] && break; done"
        );
        for (position, (pattern, server)) in patterns.iter().zip(&self.servers).enumerate() {
            let _ = writeln!(
                script,
                "case \"$t\" in *{}*) echo listening {position} ;; *)\n{} ;; esac",
                quoted(pattern),
                self.ask(position, server)
            );
        }
        script.push_str("exit 0\n");
        script
    }

    /// Starts a server once more that does not listen, and prints what it says if it ends by itself.
    fn ask(&self, position: usize, server: &Server) -> String {
        format!(
            "s=$({{ {MARK}={} {} </dev/null & p=$!; n=0; while [ $n -lt 20 ]; do sleep 0.1; kill -0 $p 2>/dev/null || exit 0; \
             n=$((n+1)); done; kill -9 $p 2>/dev/null; echo; echo penstock hangs; }} 2>&1)\n\
             set -f; case \"$s\" in *'penstock hangs') ;; *) echo said {position} $s ;; esac",
            quoted(&self.server_mark()),
            server.command
        )
    }

    /// Reads what [`Lease::grant`] printed.
    pub fn read(output: &Output) -> Granted {
        let mut granted = Granted::default();
        let mut said = String::new();
        for line in output.text().lines() {
            // iproute2 says why, and then which line of its input it was, counted from 1.
            if let Some(number) = line.strip_prefix("Command failed -:") {
                if let Some(number) = number.trim().parse::<usize>().ok().filter(|number| *number > 0) {
                    granted.failed.entry((number - 1) / 3).or_insert_with(|| std::mem::take(&mut said));
                }
            } else if let Some(id) = line.strip_prefix("boot ") {
                granted.boot = boot(id);
            } else if let Some(position) = line.strip_prefix("listening ") {
                granted.listening.extend(position.parse::<usize>());
            } else if let Some((position, text)) =
                line.strip_prefix("said ").map(|rest| rest.split_once(' ').unwrap_or((rest, "")))
            {
                let text = text.chars().filter(|c| !c.is_control()).take(200).collect();
                granted.said.extend(position.parse::<usize>().map(|position| (position, text)));
            } else if !line.trim().is_empty() {
                said = line.trim().chars().filter(|c| !c.is_control()).take(200).collect();
            }
        }
        granted
    }

    /// The command that ends the clients which outlived the command that started them.
    pub fn end_clients(&self) -> Command {
        shell(&sweep(&self.client_mark())).deadline(Duration::from_secs(20))
    }

    /// What [`Lease::revoke`] says is still there, and why, where `ip` said something.
    pub fn left(output: &Output) -> Vec<(String, String)> {
        let text = output.text();
        let left = text.lines().filter_map(|line| line.strip_prefix("left "));
        let left = left.map(|left| {
            let (what, why) = left.split_once(SAID).unwrap_or((left, ""));
            let safe = |text: &str| text.trim().chars().filter(|c| !c.is_control()).take(400).collect();
            (safe(what), safe(why))
        });
        left.collect()
    }

    /// The command that takes all of it back, and prints what is still there.
    pub fn revoke(&self) -> Command {
        let mut script = sweep(&format!("{}-", self.mark));
        // No pattern below is one for files: what `ip` says is printed as it is.
        script.push_str("set -f\n");
        if !self.addresses.is_empty() {
            let addresses =
                self.addresses.iter().map(|a| format!("address del {}/{LENGTH} dev {}", a.own, a.interface));
            // Two batches: an `ip` that cannot flush a neighbour ends there and then, whatever comes after it and `-force` or not.
            let _ = writeln!(script, "r=$({})", ip(addresses));
            let forget = ip(self.forgetting());
            let _ = writeln!(script, "n=0; while [ $n -lt 3 ]; do n=$((n+1))\nf=$({forget}) && break; done");
            script.push_str(
                "t=$(\"$ip\" -o -4 address show 2>&1)\ng=$(\"$ip\" -4 neigh show nud permanent 2>&1)\n",
            );
        }
        self.remove_links(&mut script);
        for Address { own, peer, interface, .. } in &self.addresses {
            let left = |list: &str, pattern: String, what: String, why: &str| {
                format!("case \"${list}\" in *{}*) echo {} ${why} ;; esac\n", quoted(&pattern), quoted(&what))
            };
            script.push_str(&left("t", format!(" {own}/"), format!("left the address {own}{SAID}"), "r"));
            let neighbour = format!("left the neighbour {peer}{SAID}");
            script.push_str(&left("g", format!("{peer} dev {interface} "), neighbour, "f"));
        }
        for TestLink { name, alias } in &self.links {
            let _ = writeln!(script, "{} && echo 'left the link {name}'", is_made(name, &quoted(alias)));
        }
        script.push_str(&SampleContainer::take_all_back(&self.containers));
        script.push_str("exit 0\n");
        shell(&script).deadline(Duration::from_secs(60))
    }
}

impl Server {
    /// What the kernel's table says of it (`Documentation/networking/proc_net_tcp.rst`): address and port in the machine's
    /// own byte order, nobody at the other end, and `TCP_LISTEN` or, for UDP, `TCP_CLOSE`.
    fn pattern(&self) -> String {
        let (address, port) = (u32::from_ne_bytes(self.at.ip().octets()), self.at.port());
        let state = if self.udp { "07" } else { "0A" };
        format!(" {address:08X}:{port:04X} 00000000:0000 {state} ")
    }
}

/// Ends every process with this mark, at once: none has anything to put in order. All are stopped first: a keeper whose `sleep` is
/// killed before itself would go on to what it does at its end, beside whoever ends it. What was begun meanwhile is found in a
/// further round.
pub(crate) fn sweep(mark: &str) -> String {
    format!(
        "n=0; while [ $n -lt 5 ]; do n=$((n+1)); p=\nfor f in $(grep -l {} /proc/[0-9]*/environ 2>/dev/null); do f=${{f%/environ}}; \
         p=\"$p ${{f#/proc/}}\"; done\n[ -z \"$p\" ] && break\nkill -STOP $p 2>/dev/null; kill -9 $p 2>/dev/null; done\n",
        quoted(&format!("{MARK}={mark}"))
    )
}

/// Whether a link's alias begins with this pattern of a shell, as the shell asks it.
pub fn is_made(name: &str, pattern: &str) -> String {
    format!(
        "a=; {{ read -r a </sys/class/net/{name}/ifalias; }} 2>/dev/null; case \"$a\" in {pattern}) : ;; *) false ;; esac"
    )
}

/// Has `ip` do all these, and prints what it says; what is already gone is passed over.
fn ip(lines: impl IntoIterator<Item = String>) -> String {
    let lines: String = lines.into_iter().map(|line| line + "\n").collect();
    if lines.is_empty() { lines } else { format!("\"$ip\" -force -batch - 2>&1 <<'END'\n{lines}END\n") }
}

/// Has a shell say in which run of its kernel it is.
pub const SAY_BOOT: &str =
    "{ read -r b </proc/sys/kernel/random/boot_id; } 2>/dev/null && echo \"boot $b\"\n";

/// Reads what [`SAY_BOOT`] said after "boot".
pub fn boot(id: &str) -> Option<String> {
    let is_id = !id.is_empty() && id.len() <= 64 && id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    is_id.then(|| id.to_owned())
}

/// Finds iproute2's `ip`: busybox' shell takes its own, which cannot do what is needed, before any that is on `PATH`.
pub const FIND_IP: &str =
    "ip=ip; IFS=:; for d in $PATH; do [ -x \"$d/ip\" ] && ip=$d/ip && break; done; unset IFS\n";

/// A script in the place's shell, which finds iproute2 as `"$ip"`.
pub fn shell(script: &str) -> Command {
    Command::new("sh").args(["-c", &format!("{FIND_IP}{script}")])
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

    use super::*;

    #[test]
    fn what_was_lent_is_read() {
        let output = Output {
            command: String::new(),
            status: ExitStatus::from_raw(0),
            stdout:
                b"Cannot find device \"eth9\"\nCommand failed -:5\nagain\nCommand failed -:6\nlistening 0\n\
                      listening x\nsaid 1 no such option\nsaid 2\nCommand failed -:0\n\xff\n"
                    .to_vec(),
            stderr: Vec::new(),
            truncated: false,
        };
        let granted = Lease::read(&output);
        assert_eq!(granted.failed, [(1, "Cannot find device \"eth9\"".to_owned())].into());
        assert_eq!(granted.listening, [0].into());
        assert_eq!(granted.said, [(1, "no such option".to_owned()), (2, String::new())].into());
    }

    #[test]
    fn a_server_is_known_by_the_kernels_table() {
        let at = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 12865);
        let server = Server { command: Command::new("netserver"), at, udp: false, namespace: None };
        let address = if cfg!(target_endian = "little") { "0100007F" } else { "7F000001" };
        assert_eq!(server.pattern(), format!(" {address}:3241 00000000:0000 0A "));
    }

    #[test]
    fn what_is_left_is_told_with_what_ip_says() {
        let output = |text: &str| Output {
            command: String::new(),
            status: ExitStatus::from_raw(0),
            stdout: text.into(),
            stderr: Vec::new(),
            truncated: false,
        };
        let text =
            format!("left the address 198.18.0.1{SAID} Flush terminated\nleft the link psbr0\nnoise\n");
        let left = Lease::left(&output(&text));
        let told = |what: &str, why: &str| (what.to_owned(), why.to_owned());
        assert_eq!(left, [told("the address 198.18.0.1", "Flush terminated"), told("the link psbr0", "")]);
    }
}
