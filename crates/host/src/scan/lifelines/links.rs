//! From a network interface down to the PCI functions that carry it, through bonds, bridges, VLANs and what else stacks.

use std::collections::BTreeSet;

use penstock_model::{Bdf, InterfaceName, inventory::LifelinePath};

use crate::scan::reader::{Reader, quoted};

const CLASS: &str = "/sys/class/net";
/// A stack of interfaces may be so deep (`include/linux/netdevice.h`, `MAX_NEST_DEV` is 8); ours crosses bridges too.
const DEEPEST: usize = 16;
/// So many interfaces of one stack are looked at; a bridge has at most 1024 ports (`net/bridge/br_private.h`).
const MOST: usize = 2048;
/// The device that has the ports of every Open vSwitch as its lower devices (`net/openvswitch/vport-netdev.c`).
const OPEN_VSWITCH: &str = "ovs-system";

/// Every path from interface `name` to hardware, and in words what could not be followed.
pub(super) fn below(name: &str, reader: &mut Reader<'_>) -> (Vec<LifelinePath>, Vec<String>) {
    let mut walk =
        Walk { first: name.to_owned(), paths: Vec::new(), lost: Vec::new(), seen: BTreeSet::new() };
    walk.go(name, &[], reader);
    if walk.paths.is_empty() && walk.lost.is_empty() {
        walk.lose("none of them ends at hardware".to_owned());
    }
    (walk.paths, walk.lost)
}

struct Walk {
    first: String,
    paths: Vec<LifelinePath>,
    lost: Vec<String>,
    seen: BTreeSet<String>,
}

impl Walk {
    fn go(&mut self, name: &str, above: &[String], reader: &mut Reader<'_>) {
        if name.parse::<InterfaceName>().is_err() {
            self.lose(format!("{} is no name of an interface", quoted(name)));
            return;
        }
        // A loop, or two ways to one interface: it was followed already.
        if !self.seen.insert(name.to_owned()) {
            return;
        }
        if above.len() >= DEEPEST || self.seen.len() > MOST {
            self.lose("too many interfaces are stacked there".to_owned());
            return;
        }
        let directory = format!("{CLASS}/{name}");
        if !reader.exists(&directory) {
            self.lose(format!("{directory} is not there"));
            return;
        }
        let mut names = above.to_vec();
        names.push(name.to_owned());
        let lowers = lowers(name, reader);
        let hardware = reader.target(&format!("{directory}/device")).is_some();
        if hardware {
            let function = function_of(&format!("{directory}/device"), reader);
            match function {
                Ok(function) => self.paths.push(LifelinePath { names: names.clone(), function }),
                Err(why) => self.lose(why),
            }
        }
        for lower in &lowers {
            self.go(lower, &names, reader);
        }
        if hardware || !lowers.is_empty() {
            return;
        }
        self.without_lowers(name, names, reader);
    }

    /// An interface of software that sysfs shows nothing below.
    fn without_lowers(&mut self, name: &str, names: Vec<String>, reader: &mut Reader<'_>) {
        let directory = format!("{CLASS}/{name}");
        // Loopback needs nobody.
        if is_loopback(name, reader) {
            self.paths.push(LifelinePath { names, function: None });
            return;
        }
        let number = |reader: &mut Reader<'_>, name: &str, file: &str| {
            reader.value::<u32>(&format!("{CLASS}/{name}/{file}"), "index of an interface")
        };
        let own = number(reader, name, "ifindex");
        let link = number(reader, name, "iflink").filter(|link| *link != 0 && Some(*link) != own);
        if let Some(link) = link {
            let peer = reader.list(CLASS).into_iter().find(|other| {
                other != name
                    && reader.exists(&format!("{CLASS}/{other}/ifindex"))
                    && number(reader, other, "ifindex") == Some(link)
            });
            let Some(peer) = peer else {
                self.lose(format!("{name} goes on in another network namespace"));
                return;
            };
            if number(reader, &peer, "iflink") != own {
                // A tunnel that is tied to the interface below.
                self.go(&peer, &names, reader);
                return;
            }
            // A pair of veth: what leaves by this end comes in at the other, and goes on from the bridge that has it.
            let Some(master) = reader.link_name(&format!("{CLASS}/{peer}/master")) else {
                self.lose(format!("{name} goes to {peer}, and where it is routed from there is not known"));
                return;
            };
            self.seen.insert(peer.clone());
            names_then(&names, peer, |names| self.go(&master, names, reader));
            return;
        }
        // An Open vSwitch's own port: it may use any of the switch's other ports.
        if name != OPEN_VSWITCH
            && !reader.exists(&format!("{directory}/tun_flags"))
            && reader.exists(&format!("{CLASS}/{OPEN_VSWITCH}"))
        {
            self.go(OPEN_VSWITCH, &names, reader);
            return;
        }
        self.lose(format!("{name} is made by software, and what carries its packets is not known"));
    }

    fn lose(&mut self, why: String) {
        let first = &self.first;
        let printable: String = first.chars().take(60).collect();
        self.lost.push(format!("the interfaces below {printable}: {why}"));
    }
}

/// Whether an interface is the loopback interface (`IFF_LOOPBACK`).
pub(super) fn is_loopback(name: &str, reader: &mut Reader<'_>) -> bool {
    reader.hexadecimal(&format!("{CLASS}/{name}/flags"), false).is_some_and(|flags| flags & 8 != 0)
}

fn names_then(above: &[String], name: String, then: impl FnOnce(&[String])) {
    let mut names = above.to_vec();
    names.push(name);
    then(&names);
}

/// The interfaces right below one (`lower_NAME`, `net/core/dev.c`), and those that a bond or a bridge lists by itself.
fn lowers(name: &str, reader: &mut Reader<'_>) -> BTreeSet<String> {
    let directory = format!("{CLASS}/{name}");
    let mut found: BTreeSet<String> = reader
        .list(&directory)
        .iter()
        .filter_map(|entry| Some(entry.strip_prefix("lower_")?.to_owned()))
        .collect();
    if let Some(text) = reader.text(&format!("{directory}/bonding/slaves")) {
        found.extend(text.split_whitespace().map(str::to_owned));
    }
    found.extend(reader.list(&format!("{directory}/brif")));
    found
}

/// The PCI function that a device hangs on: the last one on its path in the tree of devices. `Ok(None)`: on no PCI bus.
pub(super) fn function_of(path: &str, reader: &mut Reader<'_>) -> Result<Option<Bdf>, String> {
    let Some(real) = reader.canonical(path) else {
        return Err(format!("{path} could not be followed"));
    };
    Ok(real.rsplit('/').find_map(|part| part.parse::<Bdf>().ok().filter(|bdf| bdf.to_string() == part)))
}
