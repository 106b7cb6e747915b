//! An agent that takes itself for a node that it does not run on: it publishes nothing, prepares nothing and takes part in no roll-out.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{Agent, ChangeError};
use crate::{
    controller::{GONE_BACK, Kept, Watched},
    log,
    machine::{ConditionStatus, StatusCondition, UtcTime, condition},
    rollout::Record,
};

/// The condition that says so.
const KIND: &str = "SingleAgent";

/// The name by which whoever says so owns it: the node's own agent writes all others.
const MANAGER: &str = "penstock-agent-elsewhere";

/// So long a Node may seem to be another machine: after a start kubelet needs some time to say anew which run of the kernel it is.
const ELSEWHERE: Duration = Duration::from_secs(180);

/// What is kept of the Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    /// The kernel's run that kubelet reported.
    pub(super) boot: String,
}

impl Own {
    pub(super) fn of(node: Node) -> Own {
        let info = node.status.and_then(|status| status.node_info);
        Own {
            uid: node.metadata.uid.unwrap_or_default(),
            labels: node.metadata.labels.unwrap_or_default(),
            boot: info.map(|info| info.boot_id).unwrap_or_default(),
        }
    }
}

/// Where the Node is that the agent has the name of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeHost {
    /// It is not known yet, or there is no such Node.
    #[default]
    Unknown,
    /// It is this machine, or its kubelet does not say which it is.
    ThisMachine,
    /// It is another machine, or this one, and kubelet has not said yet that it was started anew.
    AnotherMachine,
}

impl NodeHost {
    pub(super) fn of(node: Option<&Own>, boot: &str) -> NodeHost {
        match node {
            None => NodeHost::Unknown,
            Some(node) if node.boot.is_empty() || boot.is_empty() || node.boot == boot => {
                NodeHost::ThisMachine
            }
            Some(_) => NodeHost::AnotherMachine,
        }
    }
}

/// That the Node seems to be another machine.
#[derive(Debug, Default)]
pub(super) struct BootMismatch {
    since: Option<Instant>,
    /// Of which run of the Node's kernel it was said.
    accused: Option<String>,
}

impl BootMismatch {
    /// How long it is to last until it is said of a Node with this run of the kernel; `None` when that was done.
    fn wait(&mut self, node: &str, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        let left = ELSEWHERE.saturating_sub(now.duration_since(since));
        (!left.is_zero() || self.accused.as_deref() != Some(node)).then_some(left)
    }
}

/// Keeps what is known of the Node of this name in `seen`, and tells the rest of the agent in `node_host` whether it is the machine whose kernel's
/// run is `boot`: at any time, also while a change of the machine takes minutes. It lists the Node anew when `relist` says so, and says in `went_back` that all
/// else has to be, because the cluster has gone back. It does not end.
pub(super) async fn watch_node(
    mut watched: Watched<Node>,
    (name, boot): (String, String),
    node_host: watch::Sender<NodeHost>,
    seen: watch::Sender<Kept<Own>>,
    (relist, went_back): (&Notify, &Notify),
) {
    loop {
        let event = tokio::select! {
            event = watched.next() => event,
            () = relist.notified() => {
                watched.relist();
                continue;
            }
        };
        let mut is_back = false;
        seen.send_if_modified(|kept| {
            let is_news = kept.see(event, Own::of);
            is_back = kept.has_gone_back();
            is_news
        });
        if is_back {
            log::say(GONE_BACK);
            watched.relist();
            went_back.notify_one();
        }
        let kept = seen.borrow();
        if kept.is_whole() {
            show_node_host(&name, NodeHost::of(kept.get(&name), &boot), &node_host);
        }
    }
}

/// Tells the rest of the agent where the Node is.
fn show_node_host(node: &str, now: NodeHost, told: &watch::Sender<NodeHost>) {
    let is_news = told.send_if_modified(|before| std::mem::replace(before, now) != now);
    if is_news && now == NodeHost::AnotherMachine {
        log::say(format!(
            "the Node {node} is another machine, or was started anew and kubelet has not said so yet: until it is this one nothing is published \
             and no claim prepared"
        ));
    }
}

impl Agent {
    /// The Node is another machine, or was started anew and kubelet has not said so yet. Nothing is done.
    pub(super) async fn is_elsewhere(&mut self, own: &Own) -> Result<Option<Duration>, ChangeError> {
        match self.mismatch.wait(&own.boot, Instant::now()) {
            Some(left) if left.is_zero() => {}
            left => return Ok(left.or(Some(ELSEWHERE))),
        }
        let message = accusation(&own.boot, &self.boot);
        log::say(&message);
        let condition = StatusCondition::new(KIND, false, "AnotherMachine", &message, UtcTime::now());
        self.apply_status(json!({"conditions": [condition]}), MANAGER).await?;
        self.mismatch.accused = Some(own.boot.clone());
        Ok(Some(ELSEWHERE))
    }

    /// The Node is this machine. What was said before kubelet had told of this run of the kernel is taken back.
    pub(super) async fn is_here(&mut self, own: &Own, record: Option<&Record>) -> Result<(), ChangeError> {
        self.mismatch = BootMismatch::default();
        let conditions = record.map(|record| record.status.conditions.as_slice()).unwrap_or_default();
        if is_outdated(conditions, &own.boot) {
            log::say("the Node is this machine after all");
            let object = self.apply_status(json!({"conditions": []}), MANAGER).await?;
            self.records.put(object, super::record);
        }
        Ok(())
    }
}

fn accusation(node: &str, agent: &str) -> String {
    format!(
        "an agent that takes itself for this node runs on another machine, or kubelet does not run here: the Node's kernel was started \
         as {node}, the agent's as {agent}; that agent publishes and prepares nothing"
    )
}

/// Whether it is said of another run of the Node's kernel than this one. An agent that runs on another machine says it of this one.
fn is_outdated(conditions: &[StatusCondition], node: &str) -> bool {
    let said = condition::find(conditions, KIND).filter(|said| said.status == ConditionStatus::False);
    said.is_some_and(|said| !node.is_empty() && !said.message.contains(&format!("was started as {node},")))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::{TcpListener, TcpStream},
        sync::mpsc,
        thread,
    };

    use penstock_host::{Root, boot};
    use tokio::sync::mpsc::error::TryRecvError;

    use super::*;
    use crate::{
        change::{Replan, Settings, Store, Verbs},
        client::{ClientSettings, Connection},
        penstock::Penstock,
    };

    #[test]
    fn what_a_kubelet_that_was_slow_led_to_is_taken_back_and_a_second_agent_is_not_acquitted() {
        let said = |node: &str, agent: &str| {
            let message = accusation(node, agent);
            [StatusCondition::new(KIND, false, "AnotherMachine", message, UtcTime(1))]
        };
        // Said by the node's own agent, of the run before.
        assert!(is_outdated(&said("first", "second"), "second"));
        // Said by an agent on another machine.
        assert!(!is_outdated(&said("second", "other"), "second"));
        // The machine was started anew since.
        assert!(is_outdated(&said("second", "other"), "third"));
        assert!(!is_outdated(&[], "second"));
        assert!(!is_outdated(&said("first", "second"), ""), "nobody knows which run it is");
    }

    #[test]
    fn a_node_is_elsewhere_when_both_say_which_run_of_the_kernel_they_are_of() {
        let node = |boot: &str| Own { boot: boot.to_owned(), ..Own::default() };
        assert_eq!(NodeHost::of(None, "this"), NodeHost::Unknown);
        assert_eq!(NodeHost::of(Some(&node("this")), "this"), NodeHost::ThisMachine);
        assert_eq!(NodeHost::of(Some(&node("")), "this"), NodeHost::ThisMachine);
        assert_eq!(NodeHost::of(Some(&node("another")), ""), NodeHost::ThisMachine);
        assert_eq!(NodeHost::of(Some(&node("another")), "this"), NodeHost::AnotherMachine);
    }

    /// Of an agent whose API server is at this address.
    fn settings(address: std::net::SocketAddr, state: &std::path::Path) -> Settings {
        let config = kube::Config::new(format!("http://{address}").parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        Settings {
            client: ClientSettings { kubeconfig: None },
            connection: Connection { client, host: "127.0.0.1".to_owned(), port: address.port() },
            node: "node-1".to_owned(),
            penstock: Penstock::new(std::path::Path::new("/bin/sh")).unwrap(),
            state: state.to_owned(),
            model: None,
            vanishing: watch::channel(None).0,
            refused: watch::channel(false).0,
            changing: watch::channel(false).0,
            node_host: watch::channel(NodeHost::Unknown).0,
            looked: watch::channel(0).1,
        }
    }

    /// The Node whose kubelet says that its kernel's run is `boot`.
    fn node_object(boot: &str, version: u32) -> serde_json::Value {
        let info = json!({
            "architecture": "", "bootID": boot, "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
            "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
        });
        json!({
            "apiVersion": "v1", "kind": "Node", "status": {"nodeInfo": info},
            "metadata": {"name": "node-1", "uid": "n", "labels": {"nics": "yes"}, "resourceVersion": version.to_string()},
        })
    }

    /// Answers one request of an agent: lists a machine and the Node, whose watch tells what comes from `nodes`. Whoever makes a record is left without
    /// an answer: `made` hears that it was asked for, and then that nobody waits any more.
    fn serve_one(
        stream: TcpStream,
        nodes: &std::sync::Mutex<mpsc::Receiver<String>>,
        made: &tokio::sync::mpsc::UnboundedSender<bool>,
    ) {
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        reader.read_line(&mut line).unwrap();
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).unwrap_or_default() <= 2 {
                break;
            }
            if let Some(number) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = number.trim().parse().unwrap();
            }
        }
        if line.starts_with("POST ") {
            let mut body = vec![0; length];
            drop(reader.read_exact(&mut body));
            made.send(true).unwrap();
            drop(reader.read(&mut body));
            let _ = made.send(false);
            return;
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
        let mut stream = reader.into_inner();
        let is_of_nodes = line.starts_with("GET /api/v1/nodes?");
        if line.contains("watch=") {
            stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
            if is_of_nodes {
                for event in nodes.lock().unwrap().iter() {
                    stream.write_all(event.as_bytes()).unwrap();
                }
            }
            drop(stream.read(&mut [0]));
            return;
        }
        let (kind, version, items) = if is_of_nodes {
            let boot = boot::id(&Root::system()).unwrap();
            ("NodeList", "v1", json!([node_object(&boot, 1)]))
        } else if line.contains("/sriovmachines?") {
            let machine = json!({
                "apiVersion": "penstock.dev/v1alpha1", "kind": "SriovMachine", "metadata": {"name": "all", "resourceVersion": "1"},
                "spec": {"model": "m", "nodeSelector": {"nics": "yes"}},
            });
            ("SriovMachineList", "penstock.dev/v1alpha1", json!([machine]))
        } else {
            ("SriovNodeList", "penstock.dev/v1alpha1", json!([]))
        };
        let list = json!({"apiVersion": version, "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items});
        let list = list.to_string();
        drop(stream.write_all(format!("{head}content-length: {}\r\n\r\n{list}", list.len()).as_bytes()));
    }

    #[test]
    fn a_node_that_moves_elsewhere_is_seen_while_the_agent_is_at_work() {
        let directory = tempfile::tempdir().unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let (node, nodes) = mpsc::channel::<String>();
        let (made, mut heard) = tokio::sync::mpsc::unbounded_channel();
        thread::spawn(move || {
            let nodes = std::sync::Arc::new(std::sync::Mutex::new(nodes));
            for stream in server.incoming().map_while(Result::ok) {
                let (nodes, made) = (nodes.clone(), made.clone());
                thread::spawn(move || serve_one(stream, &nodes, &made));
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (told, mut host) = watch::channel(NodeHost::Unknown);
            let settings = Settings { node_host: told, ..settings(address, directory.path()) };
            let moves = async {
                host.wait_for(|host| *host == NodeHost::ThisMachine).await.unwrap();
                assert_eq!(heard.recv().await, Some(true), "the agent makes its record");
                let event = json!({"type": "MODIFIED", "object": node_object("of-another-machine", 2)});
                node.send(format!("{event}\n")).unwrap();
                host.wait_for(|host| *host == NodeHost::AnotherMachine).await.unwrap();
                assert_eq!(heard.try_recv(), Err(TryRecvError::Empty), "it still waits for an answer");
            };
            tokio::select! {
                ended = crate::change::serve(settings) => panic!("{ended:?}"),
                moved = tokio::time::timeout(Duration::from_secs(60), moves) => moved.unwrap(),
            }
        });
    }

    #[test]
    fn an_agent_on_another_machine_is_accused_after_a_while_and_once() {
        let directory = tempfile::tempdir().unwrap();
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        // Answers one request with a SriovNode, and gives what it was sent.
        let server = std::thread::spawn(move || {
            let (stream, _) = server.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let (mut head, mut length) = (String::new(), 0);
            while reader.read_line(&mut head).unwrap() > 2 {
                let line = head.lines().last().unwrap_or_default().to_ascii_lowercase();
                if let Some(number) = line.strip_prefix("content-length:") {
                    length = number.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let object = json!({"apiVersion": "penstock.dev/v1alpha1", "kind": "SriovNode", "metadata": {"name": "node-1"}}).to_string();
            let head_of_answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            let answer = format!("{head_of_answer}\r\ncontent-length: {}\r\n\r\n{object}", object.len());
            reader.into_inner().write_all(answer.as_bytes()).unwrap();
            (head, serde_json::from_slice::<serde_json::Value>(&body).unwrap())
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let settings = settings(address, directory.path());
            let mut agent = Agent {
                verbs: Verbs::new(settings.penstock.clone()),
                settings,
                store: Store::open(directory.path()).unwrap(),
                boot: "of-the-agent".to_owned(),
                machines: Kept::default(),
                records: Kept::default(),
                nodes: watch::channel(Kept::default()).1,
                planned: None,
                replan: Replan::new(),
                mismatch: BootMismatch::default(),
            };
            let node = Own { boot: "of-the-node".to_owned(), ..Own::default() };
            // Kubelet may not have told yet.
            let left = agent.is_elsewhere(&node).await.unwrap().unwrap();
            assert!(left <= ELSEWHERE && left > ELSEWHERE / 2, "{left:?}");
            agent.mismatch.since = Instant::now().checked_sub(ELSEWHERE);
            for _ in 0..2 {
                // The second time nobody would answer.
                assert_eq!(agent.is_elsewhere(&node).await.unwrap(), Some(ELSEWHERE));
            }
        });
        let (head, told) = server.join().unwrap();
        assert!(head.starts_with("PATCH ") && head.contains("/sriovnodes/node-1/status?"), "{head}");
        assert!(head.contains(MANAGER), "{head}");
        let condition = &told["status"]["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!(KIND), &json!("False")));
        let message = condition["message"].as_str().unwrap();
        for words in
            ["started as of-the-node", "the agent's as of-the-agent", "publishes and prepares nothing"]
        {
            assert!(message.contains(words), "{message}");
        }
    }
}
