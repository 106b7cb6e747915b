//! The control plane of a Kubernetes cluster on this machine's loopback, without nodes: etcd and kube-apiserver of the program that
//! `penstock board cluster` builds, for tests of what talks to an API server.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env,
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use penstock_host::{Command, Output, process::Background};
use serde_json::Value;
use tempfile::TempDir;

use crate::{api_socket::ApiSocket, needs::Lack};

/// Names the program where it is not in Penstock's cache.
pub const PROGRAM: &str = "PENSTOCK_CLUSTER_PROGRAM";

/// How long the API server may take to be ready; 2 to 10 s where nothing else runs.
const STARTING: Duration = Duration::from_secs(180);

const PAUSE: Duration = Duration::from_millis(200);

/// How often other ports are tried where somebody else took one in the moment between its being found free and its being used.
const PORTS: usize = 5;

/// The program that is etcd, kube-apiserver and kubectl.
///
/// # Errors
///
/// Why there is none.
pub fn program() -> Result<PathBuf, Lack> {
    let named = env::var_os(PROGRAM).map(PathBuf::from);
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    let built = || {
        let directory = fs::read_dir(cache?.join("penstock/kubernetes")).ok()?;
        let programs = directory.filter_map(|entry| Some(entry.ok()?.path().join("penstock-cluster")));
        // The one that was built last is of these sources.
        programs
            .filter(|path| path.is_file())
            .max_by_key(|path| fs::metadata(path).and_then(|data| data.modified()).ok())
    };
    named.filter(|path| path.is_file()).or_else(built).ok_or_else(|| {
        let why = "there is no program of a cluster's control plane: `penstock board cluster up` builds it, which takes Go 1.26";
        Lack::Machine(format!("{why}, or {PROGRAM} names it"))
    })
}

/// A control plane. Its programs end with the thread that started it.
pub struct LocalControlPlane {
    program: PathBuf,
    directory: TempDir,
    ports: [u16; 3],
    /// etcd and the API server, by name.
    servers: RefCell<BTreeMap<&'static str, Background>>,
    proxy: Option<Background>,
}

impl LocalControlPlane {
    /// Starts one, and waits until it is ready.
    ///
    /// # Panics
    ///
    /// When it does not start, with what its programs said last.
    pub fn start(program: PathBuf) -> LocalControlPlane {
        let mut plane = LocalControlPlane::new(program);
        let credentials = plane.run("credentials", &[".", "127.0.0.1"]);
        assert!(credentials.status.success(), "{}", credentials.errors());
        fs::write(plane.path("tokens.csv"), "admin-token,admin,1,\"system:masters\"\n")
            .expect("it can be written");
        plane.start_servers();
        plane.proxy = Some(plane.begin_proxy("kubeconfig", &plane.api()));
        // The API server makes its own namespaces when it is ready already, and access rules are put into them.
        let made = || plane.api().find("/api/v1/namespaces/kube-node-lease").is_some();
        plane.wait_for("kube-apiserver", made).unwrap_or_else(|why| panic!("{why}"));
        plane
    }

    /// One of which nothing runs yet.
    fn new(program: PathBuf) -> LocalControlPlane {
        let directory = tempfile::tempdir().expect("a directory");
        let servers = RefCell::default();
        LocalControlPlane { program, directory, ports: [0; 3], servers, proxy: None }
    }

    /// Starts etcd and the API server on ports that are free, and waits until they are ready.
    fn start_servers(&mut self) {
        for left in (0..PORTS).rev() {
            let sockets = [0; 3].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("a port"));
            self.ports = sockets.map(|socket| socket.local_addr().expect("it is bound").port());
            fs::write(self.path("kubeconfig"), self.kubeconfig("admin-token")).expect("it can be written");
            self.serve("etcd", self.etcd_flags());
            match self.try_start_api_server() {
                Ok(()) => return,
                Err(why) => assert!(left > 0 && why.contains("address already in use"), "{why}"),
            }
            self.servers.borrow_mut().clear();
            // What it has of that start, if it has come so far.
            let _ = fs::remove_dir_all(self.path("etcd"));
        }
    }

    /// Starts `kubectl proxy`, through which the requests of whoever has a kubeconfig are made for as long as it lives.
    fn begin_proxy(&self, kubeconfig: &str, api: &ApiSocket) -> Background {
        let flags = [
            format!("--kubeconfig={kubeconfig}"),
            "proxy".to_owned(),
            format!("--unix-socket={}", api.0.display()),
        ];
        let mut proxy = self.begin("kubectl", flags.to_vec());
        let answers = || {
            assert!(proxy.ended().is_none(), "kubectl proxy has ended:\n{}", self.log("kubectl"));
            api.request("GET", "/version", None).is_ok()
        };
        self.wait_for("kubectl", answers).unwrap_or_else(|why| panic!("{why}"));
        proxy
    }

    /// Where the API server takes requests of whoever has `token`, for as long as the process lives. `name` is that of its files.
    ///
    /// # Panics
    ///
    /// When it does not become ready in time.
    pub fn api_as(&self, name: &str, token: &str) -> (Background, ApiSocket) {
        let kubeconfig = format!("{name}.kubeconfig");
        fs::write(self.path(&kubeconfig), self.kubeconfig(token)).expect("it can be written");
        let api = ApiSocket(self.path(&format!("{name}.socket")));
        (self.begin_proxy(&kubeconfig, &api), api)
    }

    /// Waits until a program of its is ready, and says what was said last when it never is, or a server has ended.
    fn wait_for(&self, name: &str, mut is_ready: impl FnMut() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + STARTING;
        while !is_ready() {
            let mut servers = self.servers.borrow_mut();
            let mut ended = servers.iter_mut().filter_map(|(name, server)| server.ended().map(|_| *name));
            if let Some(ended) = ended.next() {
                return Err(format!("{ended} has ended:\n{}", self.log(ended)));
            }
            drop(servers);
            if Instant::now() >= deadline {
                return Err(format!("{name} does not become ready:\n{}", self.log(name)));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// Where the API server takes requests of the administrator, of whom kubectl is not needed.
    pub fn api(&self) -> ApiSocket {
        ApiSocket(self.path("proxy.socket"))
    }

    /// A token of the agents' service account that is bound to a node, as whoever installs an agent gets it.
    pub fn token_of_agent(&self, node: &str) -> String {
        let bound = format!("--bound-object-name={node}");
        let words = [
            "create",
            "token",
            "penstock-kubernetes",
            "--namespace=penstock",
            "--bound-object-kind=Node",
            &bound,
        ];
        self.must(&words, "").trim().to_owned()
    }

    /// A file of its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts the API server, and waits until it is ready.
    ///
    /// # Panics
    ///
    /// When it does not become ready in time.
    pub fn start_api_server(&self) {
        self.try_start_api_server().unwrap_or_else(|why| panic!("{why}"));
    }

    fn try_start_api_server(&self) -> Result<(), String> {
        self.serve("kube-apiserver", self.api_server_flags());
        self.wait_for("kube-apiserver", || self.kubectl(&["get", "--raw", "/readyz"]).status.success())
    }

    fn serve(&self, name: &'static str, flags: Vec<String>) {
        self.servers.borrow_mut().insert(name, self.begin(name, flags));
    }

    /// Ends the API server.
    pub fn stop_api_server(&self) {
        self.stop("kube-apiserver");
    }

    fn stop(&self, name: &str) {
        if let Some(process) = self.servers.borrow_mut().remove(name) {
            process.end(Duration::from_secs(30));
        }
    }

    /// Keeps a copy of all that the cluster has, for [`Self::restore_etcd`]. The API server is away meanwhile.
    ///
    /// # Panics
    ///
    /// When it cannot be copied, or the servers do not become ready again.
    pub fn keep_etcd(&self) {
        self.without_servers(|| {
            let copy = Command::new("cp").args(["-a", "--no-target-directory", "etcd", "etcd.kept"]);
            copy.current_dir(self.directory.path()).succeed().expect("it can be copied");
        });
    }

    /// Has the cluster go back to what [`Self::keep_etcd`] kept, as from a snapshot: what was written since is gone, and its versions of objects are
    /// given anew.
    ///
    /// # Panics
    ///
    /// When nothing was kept, or the servers do not become ready again.
    pub fn restore_etcd(&self) {
        self.without_servers(|| {
            fs::remove_dir_all(self.path("etcd")).expect("it can be removed");
            fs::rename(self.path("etcd.kept"), self.path("etcd")).expect("it was kept");
        });
    }

    /// Does something while neither etcd nor the API server runs.
    fn without_servers(&self, act: impl FnOnce()) {
        self.stop_api_server();
        self.stop("etcd");
        act();
        self.serve("etcd", self.etcd_flags());
        self.start_api_server();
    }

    /// A kubeconfig for whoever has `token`.
    pub fn kubeconfig(&self, token: &str) -> String {
        let (port, ca) = (self.ports[2], self.path("ca.crt"));
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster:\n    \
             server: https://127.0.0.1:{port}\n    certificate-authority: {}\nusers:\n- name: u\n  user: {{token: {token}}}\n\
             contexts:\n- name: c\n  context: {{cluster: c, user: u}}\n",
            ca.display()
        )
    }

    /// Runs kubectl as the administrator, to its end.
    ///
    /// # Panics
    ///
    /// When it cannot be run.
    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        self.kubectl_with(arguments, "")
    }

    /// The same, with something on standard input.
    ///
    /// # Panics
    ///
    /// When it cannot be run.
    pub fn kubectl_with(&self, arguments: &[&str], input: &str) -> Output {
        let kubectl =
            Command::new(&self.program).args(["kubectl", "--kubeconfig=kubeconfig"]).args(arguments);
        let kubectl = kubectl.current_dir(self.directory.path()).input(input).deadline(STARTING);
        kubectl.run().expect("kubectl runs")
    }

    /// What kubectl prints, for commands that have to work.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn must(&self, arguments: &[&str], input: &str) -> String {
        let output = self.kubectl_with(arguments, input);
        assert!(output.status.success(), "kubectl {arguments:?}: {}", output.errors());
        output.text()
    }

    /// A path of the API.
    ///
    /// # Panics
    ///
    /// When there is nothing, or it is no JSON.
    pub fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.api().must("GET", path, None)).expect("JSON")
    }

    fn run(&self, name: &str, arguments: &[&str]) -> Output {
        let command = Command::new(&self.program).arg(name).args(arguments);
        command.current_dir(self.directory.path()).deadline(STARTING).run().expect("it runs")
    }

    fn begin(&self, name: &str, flags: Vec<String>) -> Background {
        let log = File::create(self.path(&format!("{name}.log"))).expect("it can be written");
        let command = Command::new(&self.program).arg(name).args(flags).current_dir(self.directory.path());
        command.start_logged(log).expect("it starts")
    }

    fn etcd_flags(&self) -> Vec<String> {
        let [client, peer, _] = self.ports.map(|port| format!("https://127.0.0.1:{port}"));
        let own = [
            "--cert-file=etcd.crt",
            "--key-file=etcd.key",
            "--trusted-ca-file=etcd-ca.crt",
            "--client-cert-auth",
        ];
        let others =
            ["--peer-cert-file=etcd.crt", "--peer-key-file=etcd.key", "--peer-trusted-ca-file=etcd-ca.crt"];
        let mut flags: Vec<String> = own.iter().chain(&others).map(|flag| (*flag).to_owned()).collect();
        flags.extend([
            "--name=etcd".to_owned(),
            "--data-dir=etcd".to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=etcd={peer}"),
            "--unsafe-no-fsync".to_owned(),
        ]);
        flags
    }

    fn api_server_flags(&self) -> Vec<String> {
        let [etcd, _, port] = self.ports;
        let fixed = [
            "--etcd-cafile=etcd-ca.crt",
            "--etcd-certfile=etcd.crt",
            "--etcd-keyfile=etcd.key",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--tls-cert-file=server.crt",
            "--tls-private-key-file=server.key",
            "--anonymous-auth=false",
            "--token-auth-file=tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--disable-admission-plugins=ServiceAccount",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--service-account-issuer=https://penstock.test",
            "--service-account-key-file=accounts.key",
            "--service-account-signing-key-file=accounts.key",
            "--endpoint-reconciler-type=none",
        ];
        let mut flags: Vec<String> = fixed.iter().map(|flag| (*flag).to_owned()).collect();
        flags.extend([format!("--etcd-servers=https://127.0.0.1:{etcd}"), format!("--secure-port={port}")]);
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script;

    /// etcd finds a port of its taken the first time; the API server is ready when etcd runs, and has nothing of the time before.
    const SCRIPT: &str = r#"#!/bin/sh
case $1 in
etcd)
    echo "$*" >>starts
    if [ "$(wc -l <starts)" = 1 ]; then
        mkdir etcd
        echo '{"level":"fatal","error":"listen tcp 127.0.0.1:1: bind: address already in use"}' >&2
        exit 1
    fi
    [ -e etcd ] || touch ready
    exec sleep 600 ;;
kube-apiserver) exec sleep 600 ;;
kubectl) [ -e ready ] ;;
esac
"#;

    #[test]
    fn other_ports_are_tried_where_one_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        script::write(&program, SCRIPT);
        let mut plane = LocalControlPlane::new(program);
        plane.start_servers();
        let starts = fs::read_to_string(plane.path("starts")).unwrap();
        let starts: Vec<&str> = starts.lines().collect();
        assert!(starts.len() == 2 && starts[0] != starts[1], "{starts:#?}");
    }
}
