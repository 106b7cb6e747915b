//! What an editor says of models: the real YAML language server (scripts/fetch-yaml-language-server) is shown every example and every
//! golden model over the Language Server Protocol, with the schema of this tree and without a network.
#![allow(clippy::disallowed_methods)]

#[path = "../../model/tests/schema/beyond_a_schema.rs"]
mod beyond_a_schema;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use beyond_a_schema::BEYOND_A_SCHEMA;
use penstock_model::{MODELINE, Source, parse};
use penstock_testkit::{
    needs,
    trials::{Outcome, Test, Trials},
};
use serde_json::{Value, json};

/// How long the server may be silent. A loaded machine is slow to start it.
const DEADLINE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("the YAML language server", || needs::yaml_language_server().err());
    let tests: [(&str, Test); 2] = [
        ("an_editor_finds_nothing_in_good_models_and_something_in_bad_ones", models_in_an_editor),
        ("an_editor_finds_the_schema_by_the_line_that_examples_begin_with", examples_by_their_modeline),
    ];
    trials.add(&missing, tests);
    trials.run()
}

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

/// The schema of this tree as an address that needs no network.
fn schema() -> String {
    format!("file://{}", root().join("schema/model.schema.json").display())
}

fn examples() -> BTreeMap<String, String> {
    let files = fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let models = files.filter(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    models
        .map(|path| {
            (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// The golden models that are text, by their folders.
fn golden() -> BTreeMap<String, String> {
    let folders =
        fs::read_dir(root().join("crates/model/tests/golden")).unwrap().map(|entry| entry.unwrap().path());
    let text = |folder: PathBuf| {
        let text = String::from_utf8(fs::read(folder.join("model.yaml")).unwrap()).ok()?;
        Some((folder.file_name().unwrap().to_string_lossy().into_owned(), text))
    };
    folders.filter_map(text).collect()
}

/// Bad models of which the server itself says nothing, whatever the schema is.
const PASSED_OVER: [(&str, &str); 4] = [
    ("alias-inside-itself", "it follows no alias into what it stands for"),
    ("empty", "it holds no file against a schema that has nothing in it"),
    ("only-a-comment", "it holds no file against a schema that has nothing in it"),
    ("merge-key", "it merges as YAML 1.1 does, before it looks at the keys"),
];

/// With the schema from the editor's settings.
fn models_in_an_editor() -> Outcome {
    let without_modeline = |(name, text): (String, String)| (name, text.replacen(MODELINE, "", 1));
    let models: BTreeMap<String, String> =
        examples().into_iter().chain(golden()).map(without_modeline).collect();
    let settings = json!({schema(): ["*.yaml"]});
    let found = diagnostics(&models, settings)?;
    let beyond: BTreeSet<&str> = BEYOND_A_SCHEMA.iter().flat_map(|(_, cases)| *cases).copied().collect();
    let (mut wrong, mut good, mut refused) = (Vec::new(), 0, 0);
    for (name, text) in &models {
        let said = &found[name];
        match parse(&Source::new("m.yaml", text.as_str())) {
            Ok(_) => {
                good += 1;
                wrong.extend(said.iter().map(|text| format!("{name} is good, and the editor says: {text}")));
            }
            Err(_) if !said.is_empty() => {
                refused += 1;
                let known = PASSED_OVER.iter().filter(|(passed, _)| passed == name);
                wrong.extend(
                    known.map(|_| {
                        format!("{name}: the editor says {said:?}, and is listed as passing it over")
                    }),
                );
            }
            Err(_) if beyond.contains(name.as_str()) => {}
            Err(_) if PASSED_OVER.iter().any(|(passed, _)| passed == name) => {}
            Err(_) => wrong.push(format!("{name} is bad, and the editor says nothing")),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n").into());
    }
    // Else it looked at nothing.
    assert!(good > 20 && refused > 20, "{good} good models and {refused} that are refused");
    Ok(())
}

/// With no settings: the line at the beginning alone says which schema it is. Its address is exchanged for one of this tree.
fn examples_by_their_modeline() -> Outcome {
    let address = MODELINE.split_once("$schema=").ok_or("the modeline names no schema")?.1;
    let mut models = BTreeMap::new();
    for (name, text) in examples() {
        let text = text.replacen(address, &schema(), 1);
        models.insert(format!("bad-{name}"), format!("{text}\nnonsense: 1\n"));
        models.insert(name, text);
    }
    let found = diagnostics(&models, json!({}))?;
    for (name, said) in &found {
        let bad = name.starts_with("bad-");
        if said.is_empty() == bad {
            return Err(format!("{name}: the editor says {said:?}").into());
        }
        assert!(!bad || said.iter().any(|text| text.contains("nonsense")), "{name}: {said:?}");
    }
    assert!(found.len() > 10, "{found:?}");
    Ok(())
}

/// What the server says of each of these files, with these schemas in its settings.
fn diagnostics(
    models: &BTreeMap<String, String>,
    schemas: Value,
) -> Result<BTreeMap<String, Vec<String>>, String> {
    let program = needs::yaml_language_server().map_err(|lack| lack.to_string())?;
    let mut server = Server::start(&program).map_err(|error| format!("{}: {error}", program.display()))?;
    let capabilities =
        json!({"textDocument": {"publishDiagnostics": {}}, "workspace": {"configuration": true}});
    server.yaml = json!({"validate": true, "schemas": schemas, "schemaStore": {"enable": false}, "kubernetesCRDStore": {"enable": false}});
    server
        .request("initialize", json!({"processId": null, "rootUri": null, "capabilities": capabilities}))?;
    server.notify("initialized", json!({}))?;
    server.notify("workspace/didChangeConfiguration", json!({"settings": {"yaml": server.yaml}}))?;
    let address = |name: &str| format!("file:///models/{name}.yaml");
    for (name, text) in models {
        let document = json!({"uri": address(name), "languageId": "yaml", "version": 1, "text": text});
        server.notify("textDocument/didOpen", json!({"textDocument": document}))?;
        // One at a time: a change of settings has it look again at all that is open.
        while !server.said.contains_key(&address(name)) {
            server.take()?;
        }
    }
    // What it was still about is said before it answers.
    server.request("shutdown", Value::Null)?;
    server.notify("exit", Value::Null)?;
    Ok(models
        .keys()
        .map(|name| (name.clone(), server.said.remove(&address(name)).unwrap_or_default()))
        .collect())
}

/// A language server, spoken to as JSON-RPC with a header for each message (Language Server Protocol 3.17, "Base Protocol").
struct Server {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    requests: u64,
    /// What it is answered when it asks for its settings.
    yaml: Value,
    /// What it has said of each file last.
    said: BTreeMap<String, Vec<String>>,
}

impl Server {
    fn start(program: &Path) -> io::Result<Server> {
        let mut child = Command::new(program)
            .arg("--stdio")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let (to, out) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (tell, from) = mpsc::channel();
        thread::spawn(move || {
            let mut out = BufReader::new(out);
            while let Ok(Some(message)) = message(&mut out) {
                if tell.send(message).is_err() {
                    break;
                }
            }
        });
        Ok(Server { child, to, from, requests: 0, yaml: Value::Null, said: BTreeMap::new() })
    }

    fn send(&mut self, message: &Value) -> Result<(), String> {
        let text = message.to_string();
        write!(self.to, "Content-Length: {}\r\n\r\n{text}", text.len())
            .and_then(|()| self.to.flush())
            .map_err(|error| format!("the server takes nothing any more: {error}"))
    }

    fn notify(&mut self, method: &str, params: Value) -> Result<(), String> {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    /// Asks, and waits for the answer.
    fn request(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let message = self.take()?;
            if message["id"] == id && message.get("method").is_none() {
                return match message.get("error") {
                    None => Ok(message["result"].clone()),
                    Some(error) => Err(format!("{method}: {error}")),
                };
            }
        }
    }

    /// The next message. What it says of files is kept, and what it asks is answered.
    fn take(&mut self) -> Result<Value, String> {
        let began = Instant::now();
        let message = self.from.recv_timeout(DEADLINE).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("the server has said nothing for {:?}", began.elapsed()),
            RecvTimeoutError::Disconnected => format!("the server has ended: {:?}", self.child.try_wait()),
        })?;
        match message["method"].as_str() {
            Some("textDocument/publishDiagnostics") => {
                let texts = message["params"]["diagnostics"].as_array().into_iter().flatten();
                let texts =
                    texts.map(|one| format!("line {}: {}", one["range"]["start"]["line"], one["message"]));
                let uri = message["params"]["uri"].as_str().unwrap_or_default().to_owned();
                self.said.insert(uri, texts.collect());
            }
            Some(method) if message.get("id").is_some() => {
                let yaml = self.yaml.clone();
                let section = |item: &Value| if item["section"] == "yaml" { yaml.clone() } else { json!({}) };
                let items = message["params"]["items"].as_array().into_iter().flatten();
                let result = match method {
                    "workspace/configuration" => Value::Array(items.map(section).collect()),
                    _ => Value::Null,
                };
                self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))?;
            }
            _ => {}
        }
        Ok(message)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One message; `None` at the end.
fn message(from: &mut impl BufRead) -> io::Result<Option<Value>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Some(serde_json::from_slice(&body)?))
}
