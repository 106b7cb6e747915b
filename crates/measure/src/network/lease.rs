//! What a place is lent for a run: addresses, neighbours, servers. It is lent for a while, and renewed while the run goes on:
//! the kernel takes the addresses back by itself (`valid_lft`), and a keeper in the place the rest, so that a Penstock that is
//! killed leaves nothing for long.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use penstock_host::{Command, Output};
use penstock_model::Mac;

use super::addresses::LENGTH;

/// The variable in the environment of every process that a run starts in a place: by it they are found and ended, also
/// those that outlived the command that started them, and never a stranger that has a process id anew.
pub const MARK: &str = "PENSTOCK_MEASURE";

/// How much longer addresses last than their keeper: what is lent later never meets a keeper of the same address.
const SLACK: u64 = 10;

/// What a place is lent.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    /// What tells this run's processes there from all others.
    pub mark: String,
    /// Addresses, each with the one at the other end.
    pub addresses: Vec<Address>,
    /// Servers.
    pub servers: Vec<Server>,
    /// Links that were made there for the run, with what their alias says (`ip link set alias`).
    pub links: Vec<Made>,
}

/// An address, and the one that it is to reach.
#[derive(Clone, Debug)]
pub struct Address {
    /// The interface.
    pub interface: String,
    /// Whether the interface was made for the run, and has to be set up first.
    pub fresh: bool,
    /// The address.
    pub own: Ipv4Addr,
    /// The other end's.
    pub peer: Ipv4Addr,
    /// The other end's MAC address. It is never asked for: where several interfaces of a guest hang on one network each
    /// answers for all of its addresses, and the traffic would cross another one than was meant.
    pub peer_mac: Mac,
}

/// A server.
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
pub struct Made {
    /// Its name.
    pub name: String,
    /// Its alias.
    pub alias: String,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// Addresses that could not be set, by position, with what was said.
    pub failed: BTreeMap<usize, String>,
    /// Servers that listen, by position.
    pub listening: BTreeSet<usize>,
}

impl Lease {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.servers.is_empty() && self.links.is_empty()
    }

    /// The variable by which clients in this place are marked.
    pub fn client_mark(&self) -> String {
        format!("{}-client;", self.mark)
    }

    fn server_mark(&self) -> String {
        format!("{}-server;", self.mark)
    }

    /// The command that lends it, or lends it anew, and gives the servers `patience` to listen.
    pub fn grant(&self, lasting: Duration, patience: Duration) -> Command {
        let mut script = String::from(
            "try() { n=$1; shift; said=$(\"$@\" 2>&1) || { [ -n \"$said\" ] || said='no reason given'; \
             echo failed $n $said; }; }\n",
        );
        script.push_str(&sweep(&self.server_mark()));
        for (position, address) in self.addresses.iter().enumerate() {
            let (interface, own, peer) = (quoted(&address.interface), address.own, address.peer);
            let last = lasting.as_secs() + SLACK;
            // Writing to a `String` cannot fail, here and below.
            if address.fresh {
                let _ = writeln!(script, "try {position} ip link set dev {interface} up");
            }
            let _ = writeln!(
                script,
                "try {position} ip address replace {own}/{LENGTH} dev {interface} valid_lft {last} preferred_lft {last}\n\
                 try {position} ip neigh replace {peer} lladdr {} dev {interface} nud permanent",
                address.peer_mac
            );
        }
        let _ = writeln!(
            script,
            "s=$(command -v setsid)\n{MARK}={} $s sh -c {} penstock-measure </dev/null >/dev/null 2>&1 &",
            quoted(&self.server_mark()),
            quoted(&self.keeper(lasting))
        );
        script.push_str(&self.wait(patience));
        shell(&script).deadline(patience * 2 + Duration::from_secs(20))
    }

    /// What runs in the place meanwhile.
    fn keeper(&self, lasting: Duration) -> String {
        let mut script = String::from("p=\n");
        for server in &self.servers {
            let _ = writeln!(script, "{} & p=\"$p $!\"", server.command);
        }
        let _ = writeln!(script, "sleep {}\n[ -z \"$p\" ] || kill -9 $p", lasting.as_secs());
        for address in &self.addresses {
            let _ = writeln!(script, "ip neigh del {} dev {}", address.peer, quoted(&address.interface));
        }
        self.remove_links(&mut script);
        script.push_str("exit 0\n");
        script
    }

    fn remove_links(&self, script: &mut String) {
        for link in &self.links {
            let _ = writeln!(script, "{}", remove_link(link));
        }
    }

    /// Waits until every server listens, and says which do.
    fn wait(&self, patience: Duration) -> String {
        let mut tables = String::from("/proc/net/tcp /proc/net/udp");
        for process in self.servers.iter().filter_map(|server| server.namespace).collect::<BTreeSet<_>>() {
            let _ = write!(tables, " /proc/{process}/net/tcp /proc/{process}/net/udp");
        }
        let mut script = format!("n=0\nwhile :; do t=$(cat {tables}); all=1\n");
        let patterns: Vec<String> = self.servers.iter().map(Server::pattern).collect();
        for pattern in &patterns {
            let _ = writeln!(script, "case \"$t\" in *{}*) ;; *) all=0 ;; esac", quoted(pattern));
        }
        let tries = patience.as_millis() / 100;
        let _ = writeln!(
            script,
            "[ $all = 1 ] && break; n=$((n+1)); [ $n -ge {tries} ] && break; sleep 0.1; done"
        );
        for (position, pattern) in patterns.iter().enumerate() {
            let _ =
                writeln!(script, "case \"$t\" in *{}*) echo listening {position} ;; esac", quoted(pattern));
        }
        script.push_str("exit 0\n");
        script
    }

    /// Reads what [`Lease::grant`] printed.
    pub fn read(output: &Output) -> Granted {
        let mut granted = Granted::default();
        for line in output.text().lines() {
            let mut words = line.splitn(3, ' ');
            let key = words.next().unwrap_or_default();
            let Some(position) = words.next().and_then(|word| word.parse().ok()) else { continue };
            match key {
                "failed" => {
                    let said = words.next().unwrap_or_default();
                    let said = said.chars().filter(|c| !c.is_control()).take(200).collect();
                    granted.failed.entry(position).or_insert(said);
                }
                "listening" => drop(granted.listening.insert(position)),
                _ => {}
            }
        }
        granted
    }

    /// The command that ends the clients which outlived the command that started them.
    pub fn end_clients(&self) -> Command {
        shell(&sweep(&self.client_mark())).deadline(Duration::from_secs(20))
    }

    /// The command that takes all of it back, and prints what is still there.
    pub fn revoke(&self) -> Command {
        let mut script = sweep(&self.client_mark()) + &sweep(&self.server_mark());
        for address in &self.addresses {
            let (interface, own, peer) = (quoted(&address.interface), address.own, address.peer);
            let _ = writeln!(
                script,
                "ip neigh del {peer} dev {interface} 2>/dev/null\n\
                 ip address del {own}/{LENGTH} dev {interface} 2>/dev/null\n\
                 case \"$(ip -4 address show dev {interface} 2>/dev/null)\" in *' {own}/'*) \
                 echo \"the address {own} on {}\" ;; esac",
                address.interface.replace(['"', '$', '`', '\\'], "?"),
            );
        }
        self.remove_links(&mut script);
        for link in &self.links {
            let _ = writeln!(
                script,
                "[ \"$(cat /sys/class/net/{name}/ifalias 2>/dev/null)\" != {} ] || echo 'the link {name}'",
                quoted(&link.alias),
                name = link.name
            );
        }
        script.push_str("exit 0\n");
        shell(&script).deadline(Duration::from_secs(30))
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

/// Ends every process with this mark, at once: none has anything to put in order.
fn sweep(mark: &str) -> String {
    format!(
        "for f in $(grep -l {} /proc/[0-9]*/environ 2>/dev/null); do f=${{f%/environ}}; kill -9 ${{f#/proc/}} 2>/dev/null; \
         done\n",
        quoted(&format!("{MARK}={mark}"))
    )
}

/// Removes a link if it is the one that was made.
fn remove_link(link: &Made) -> String {
    let Made { name, alias } = link;
    format!(
        "[ \"$(cat /sys/class/net/{name}/ifalias 2>/dev/null)\" != {} ] || ip link del dev {name} 2>/dev/null",
        quoted(alias)
    )
}

/// A script in the place's shell.
pub fn shell(script: &str) -> Command {
    Command::new("sh").args(["-c", script])
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
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
            stdout: b"failed 1 Cannot find device \"eth9\"\nfailed 1 again\nlistening 0\nlistening x\nfailed\n\xff\n"
                .to_vec(),
            stderr: Vec::new(),
            truncated: false,
        };
        let granted = Lease::read(&output);
        assert_eq!(granted.failed, [(1, "Cannot find device \"eth9\"".to_owned())].into());
        assert_eq!(granted.listening, [0].into());
    }

    #[test]
    fn a_server_is_known_by_the_kernels_table() {
        let at = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 12865);
        let server = Server { command: Command::new("netserver"), at, udp: false, namespace: None };
        let address = if cfg!(target_endian = "little") { "0100007F" } else { "7F000001" };
        assert_eq!(server.pattern(), format!(" {address}:3241 00000000:0000 0A "));
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(quoted("a'b $c"), r"'a'\''b $c'");
    }
}
