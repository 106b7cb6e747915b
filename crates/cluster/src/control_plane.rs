//! etcd, the API server, the controller manager, the scheduler and kwok: processes of this machine that listen on 127.0.0.1 alone, each for
//! whoever can show what the files of the cluster's own directory hold, and that this user alone can read.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use penstock_board::FORWARD_ADDRESS;
use penstock_host::{Command, ProcessError, files, interrupt, process::Background, running::Running, secret};

use crate::{config, error::ClusterError, kept::KeptProgram, program::ClusterProgram};

/// The kubeconfig of the administrator, in the cluster's directory.
pub const KUBECONFIG: &str = "kubeconfig";

/// The certificate authority of the API server.
pub const CA: &str = "ca.crt";

/// The API server's static tokens.
const TOKENS: &str = "tokens.csv";

/// What kwok makes of nodes and pods.
const STAGES: &str = "kwok.yaml";

/// How long the API server may take to be ready; 2 to 5 s where nothing else runs.
const STARTING: Duration = Duration::from_secs(180);

/// How often it is looked at.
const PAUSE: Duration = Duration::from_millis(200);

/// How often other ports are tried where somebody else took one in the moment between its being found free and its being used.
const PORTS: usize = 5;

/// The controllers that are run: those that nodes, pods, claims and what has pods made need, and the one that tells pods the certificate of the
/// API server (`kube-root-ca.crt`). There is no cloud, and no storage.
const CONTROLLERS: &str = "node-lifecycle-controller,taint-eviction-controller,device-taint-eviction-controller,resourceclaim-controller,\
     garbage-collector-controller,pod-garbage-collector-controller,namespace-controller,serviceaccount-controller,\
     root-ca-certificate-publisher-controller,\
     clusterrole-aggregation-controller,validatingadmissionpolicy-status-controller,daemonset-controller,deployment-controller,\
     replicaset-controller,job-controller,disruption-controller";

/// Who is told of each program as soon as it runs, so that somebody finds it when this process dies.
pub type Note<'a> = &'a mut dyn FnMut(&KeptProgram) -> Result<(), ClusterError>;

/// The programs of a control plane. Dropped, they are ended, unless they were [left](ControlPlane::leave).
#[derive(Debug)]
pub struct ControlPlane {
    processes: Vec<(&'static str, Background)>,
    port: u16,
}

/// What the programs of a cluster know each other by.
#[derive(Debug)]
pub struct Secrets {
    admin: String,
    /// The name and the token of each node.
    pub nodes: Vec<(String, String)>,
    /// The certificate authority of the API server, PEM.
    pub ca: String,
}

impl Secrets {
    /// Makes them, and the files that hold them, in the directory of a new cluster.
    ///
    /// # Errors
    ///
    /// When the program fails, there is no randomness to make tokens of, or a file cannot be written.
    pub fn make(
        program: &ClusterProgram,
        directory: &Path,
        nodes: &[String],
    ) -> Result<Secrets, ClusterError> {
        program
            .command("credentials")
            // The address that this machine, nodes and pods each know the API server by.
            .args([".", "127.0.0.1", FORWARD_ADDRESS, config::API_SERVICE])
            .current_dir(directory)
            .deadline(STARTING)
            .succeed()?;
        let admin = secret::token().map_err(ClusterError::Secret)?;
        let nodes = nodes.iter().map(|node| Ok((node.clone(), secret::token()?)));
        let nodes: Vec<(String, String)> = nodes.collect::<Result<_, _>>().map_err(ClusterError::Secret)?;
        files::write_atomic_mode(directory.join(TOKENS), config::tokens(&admin, &nodes), 0o600)?;
        let ca = files::read_to_string(directory.join(CA))?;
        Ok(Secrets { admin, nodes, ca })
    }
}

impl ControlPlane {
    /// Starts etcd and the API server of the cluster `name` in its directory, on ports that are free, up to where the API server listens.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Ended`] with what it said last when one of them ends, [`ClusterError::Port`] when no port is free or others take
    /// those that are again and again, [`ClusterError::NotReady`], and when an interrupt comes, a program cannot be started, or a file
    /// cannot be written.
    pub fn start(
        program: &ClusterProgram,
        directory: &Path,
        name: &str,
        secrets: &Secrets,
        note: Note<'_>,
    ) -> Result<ControlPlane, ClusterError> {
        for _ in 0..PORTS {
            let [client, peer, port] = free_ports()?;
            let mut plane = ControlPlane { processes: Vec::new(), port };
            let started = plane
                .run("etcd", etcd(program, client, peer), directory, note)
                .and_then(|()| plane.run("kube-apiserver", apiserver(program, client, port), directory, note))
                .and_then(|()| plane.await_listening(directory));
            match started {
                Err(ClusterError::Ended { why, .. }) if why.contains("address already in use") => {
                    drop(plane);
                    // What it has of that start.
                    files::remove_tree(directory.join("etcd"))?;
                }
                started => {
                    started?;
                    let text = config::kubeconfig(
                        name,
                        &config::server_here(port),
                        &secrets.ca,
                        "admin",
                        &secrets.admin,
                    );
                    files::write_atomic_mode(directory.join(KUBECONFIG), text, 0o600)?;
                    return Ok(plane);
                }
            }
        }
        Err(ClusterError::Port {
            program: "etcd and kube-apiserver",
            source: std::io::ErrorKind::AddrInUse.into(),
        })
    }

    /// The port of the API server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until the API server is ready, and starts the programs that are its clients; with `simulate` kwok too.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NotReady`] with what the API server says, [`ClusterError::Ended`], and when an interrupt comes, a program cannot
    /// be started, or a file cannot be written.
    pub fn complete(
        &mut self,
        program: &ClusterProgram,
        directory: &Path,
        simulate: bool,
        note: Note<'_>,
    ) -> Result<(), ClusterError> {
        self.await_ready(program, directory)?;
        self.run("kube-controller-manager", controller_manager(program), directory, note)?;
        self.run("kube-scheduler", scheduler(program), directory, note)?;
        if simulate {
            let stages =
                program.command("kwok-stages").current_dir(directory).deadline(STARTING).succeed()?;
            files::write_atomic_mode(directory.join(STAGES), stages.stdout, 0o600)?;
            self.run("kwok", kwok(program), directory, note)?;
        }
        Ok(())
    }

    /// An error with what it said last when one of the programs has ended.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Ended`].
    pub fn check(&mut self, directory: &Path) -> Result<(), ClusterError> {
        for (name, process) in &mut self.processes {
            if process.ended().is_some() {
                return Err(ClusterError::Ended {
                    program: (*name).to_owned(),
                    why: last_lines(directory, name),
                });
            }
        }
        Ok(())
    }

    /// Lets the programs live on without Penstock.
    pub fn leave(self) {
        self.processes.into_iter().for_each(|(_, process)| process.leave());
    }

    fn run(
        &mut self,
        name: &'static str,
        command: Command,
        directory: &Path,
        note: Note<'_>,
    ) -> Result<(), ClusterError> {
        let log = directory.join(log_of(name));
        files::remove_file(&log)?;
        let log = files::append(&log)?;
        let process = command.current_dir(directory).start_session(log)?;
        let running = Running::of(process.id());
        self.processes.push((name, process));
        match running {
            Some(process) => note(&KeptProgram { name: name.to_owned(), process }),
            None => self.check(directory),
        }
    }

    /// Until the API server listens at its port; where another does, it ends, and says so.
    fn await_listening(&mut self, directory: &Path) -> Result<(), ClusterError> {
        let deadline = Instant::now() + STARTING;
        while !self.processes.last().is_some_and(|(_, process)| listens(process.id(), self.port)) {
            self.wait(directory, deadline, "it does not listen at its port")?;
        }
        self.check(directory)
    }

    fn await_ready(&mut self, program: &ClusterProgram, directory: &Path) -> Result<(), ClusterError> {
        let deadline = Instant::now() + STARTING;
        let look = kubectl(program, directory).args(["get", "--raw", "/readyz"]).deadline(STARTING);
        loop {
            let output = match look.run() {
                Err(ProcessError::Interrupted { .. }) => return Err(interrupted()),
                output => output?,
            };
            if output.status.success() {
                return Ok(());
            }
            self.wait(directory, deadline, output.errors().trim())?;
        }
    }

    fn wait(&mut self, directory: &Path, deadline: Instant, why: &str) -> Result<(), ClusterError> {
        if interrupt::pending() {
            return Err(interrupted());
        }
        self.check(directory)?;
        if Instant::now() > deadline {
            return Err(ClusterError::NotReady { after: STARTING, why: why.to_owned() });
        }
        thread::sleep(PAUSE);
        Ok(())
    }
}

/// Whether the process `id` itself listens at this port of 127.0.0.1 (proc_pid_net(5), `tcp`: the address is the number that its bytes are in
/// memory, state 0A is TCP_LISTEN). That somebody does is not enough: it may be another who was quicker.
fn listens(id: u32, port: u16) -> bool {
    let of = |name: &str| PathBuf::from(format!("/proc/{id}/{name}"));
    let address = format!("{:08X}:{port:04X}", u32::from_ne_bytes(Ipv4Addr::LOCALHOST.octets()));
    let table = files::read_to_string(of("net/tcp")).unwrap_or_default();
    let socket = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, "0A", _, _, _, _, _, inode, ..] = words[..] else { return None };
        (local == address).then(|| PathBuf::from(format!("socket:[{inode}]")))
    };
    let sockets: Vec<PathBuf> = table.lines().filter_map(socket).collect();
    let open = files::list(of("fd")).unwrap_or_default();
    let leads = |name: &String| files::read_link(of("fd").join(name)).is_ok_and(|to| sockets.contains(&to));
    !sockets.is_empty() && open.iter().any(leads)
}

fn interrupted() -> ClusterError {
    ClusterError::Interrupted { doing: "waiting for the API server" }
}

/// kubectl as the administrator of the cluster in `directory`.
pub fn kubectl(program: &ClusterProgram, directory: &Path) -> Command {
    program.command("kubectl").env("KUBECONFIG", directory.join(KUBECONFIG))
}

/// The log of a program, in the cluster's directory.
fn log_of(program: &str) -> String {
    format!("{program}.log")
}

fn last_lines(directory: &Path, program: &str) -> String {
    let said = files::read_tail(directory.join(log_of(program)), 4096).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    let lines: Vec<&str> = said.trim_end().lines().collect();
    if lines.is_empty() {
        "it said nothing".to_owned()
    } else {
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

/// Ports of the loopback interface at which nobody listens, each another.
fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT], ClusterError> {
    let bind = |source| ClusterError::Port { program: "the control plane", source };
    let mut ports = [0; COUNT];
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(bind)?;
        *port = listener.local_addr().map_err(bind)?.port();
        // Until all are found, so that none is found twice.
        held.push(listener);
    }
    Ok(ports)
}

/// Its one client shows the certificate that it has itself: nobody else's connection is taken. What it holds need not outlive the machine.
fn etcd(program: &ClusterProgram, client: u16, peer: u16) -> Command {
    let (client, peer) = (config::server_here(client), config::server_here(peer));
    let flags = [
        "--name=etcd".to_owned(),
        "--data-dir=etcd".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=etcd={peer}"),
        "--cert-file=etcd.crt".to_owned(),
        "--key-file=etcd.key".to_owned(),
        "--trusted-ca-file=etcd-ca.crt".to_owned(),
        "--client-cert-auth".to_owned(),
        "--peer-cert-file=etcd.crt".to_owned(),
        "--peer-key-file=etcd.key".to_owned(),
        "--peer-trusted-ca-file=etcd-ca.crt".to_owned(),
        "--peer-client-cert-auth".to_owned(),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    program.command("etcd").args(flags)
}

fn apiserver(program: &ClusterProgram, etcd: u16, port: u16) -> Command {
    let flags = [
        format!("--etcd-servers={}", config::server_here(etcd)),
        "--etcd-cafile=etcd-ca.crt".to_owned(),
        "--etcd-certfile=etcd.crt".to_owned(),
        "--etcd-keyfile=etcd.key".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        "--tls-cert-file=server.crt".to_owned(),
        "--tls-private-key-file=server.key".to_owned(),
        "--anonymous-auth=false".to_owned(),
        format!("--token-auth-file={TOKENS}"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        // Hardly a pod here asks the API server anything, so they are not made to wait for a token to it. Those that name one are given it.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--allow-privileged".to_owned(),
        format!("--service-cluster-ip-range={}", config::SERVICES),
        format!("--service-account-issuer={}", config::ISSUER),
        "--service-account-key-file=accounts.key".to_owned(),
        "--service-account-signing-key-file=accounts.key".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
    ];
    program.command("kube-apiserver").args(flags)
}

fn controller_manager(program: &ClusterProgram) -> Command {
    let flags = [
        format!("--kubeconfig={KUBECONFIG}"),
        // It serves nobody.
        "--secure-port=0".to_owned(),
        "--leader-elect=false".to_owned(),
        "--service-account-private-key-file=accounts.key".to_owned(),
        format!("--root-ca-file={CA}"),
        format!("--controllers={CONTROLLERS}"),
    ];
    program.command("kube-controller-manager").args(flags)
}

fn scheduler(program: &ClusterProgram) -> Command {
    program.command("kube-scheduler").args([
        &format!("--kubeconfig={KUBECONFIG}"),
        "--secure-port=0",
        "--leader-elect=false",
    ])
}

fn kwok(program: &ClusterProgram) -> Command {
    program.command("kwok").args([
        &format!("--config={STAGES}"),
        &format!("--kubeconfig={KUBECONFIG}"),
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
        // Without a port it serves nobody: it would listen on every address, without asking who comes.
        "--node-port=0",
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_differ() {
        let ports: [u16; 3] = free_ports().unwrap();
        assert!(ports[0] != ports[1] && ports[1] != ports[2] && ports[0] != ports[2] && !ports.contains(&0));
    }

    #[test]
    fn ports_that_others_take_again_and_again_are_what_is_told_of() {
        let there = tempfile::tempdir().unwrap();
        let file = there.path().join("program");
        // The other one is ended with it: were that quicker, this one might have said nothing yet.
        let text = "#!/bin/sh\n[ \"$1\" = etcd ] || exec sleep 600\necho \"$1\" >>tried\n\
                    echo 'bind: address already in use' >&2\nexit 1\n";
        penstock_testkit::script::write(&file, text);
        let program = ClusterProgram::called(&file.to_string_lossy());
        let secrets = Secrets { admin: String::new(), nodes: Vec::new(), ca: String::new() };
        let started = ControlPlane::start(&program, there.path(), "try", &secrets, &mut |_| Ok(()));
        assert!(matches!(&started, Err(ClusterError::Port { .. })), "{started:?}");
        let tried = files::read_to_string(there.path().join("tried")).unwrap();
        assert_eq!(tried.lines().count(), PORTS);
    }

    #[test]
    fn a_port_is_a_processs_own_or_not() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let sleep = Command::new("sleep").arg("600").start_logged(tempfile::tempfile().unwrap()).unwrap();
        assert!(listens(std::process::id(), port));
        assert!(!listens(sleep.id(), port), "another listens there");
        let client = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        drop(listener);
        assert!(!listens(std::process::id(), port), "{client:?} is no listener");
    }

    #[test]
    fn nobody_listens_elsewhere_than_on_loopback_and_no_secret_is_on_a_command_line() {
        let program = ClusterProgram::called("/p");
        let all = [
            etcd(&program, 1, 2),
            apiserver(&program, 1, 3),
            controller_manager(&program),
            scheduler(&program),
            kwok(&program),
        ];
        for command in &all {
            let line = command.to_string();
            assert!(!line.contains("0.0.0.0") && !line.contains("http://"), "{line}");
        }
        let lines = all.map(|command| command.to_string());
        assert!(lines[0].contains("--client-cert-auth") && lines[0].contains("--peer-client-cert-auth"));
        assert!(lines[1].contains("--bind-address=127.0.0.1") && lines[1].contains("--anonymous-auth=false"));
        assert!(lines[2].contains("--secure-port=0") && lines[3].contains("--secure-port=0"));
        assert!(lines[4].contains("--node-port=0"));
    }
}
