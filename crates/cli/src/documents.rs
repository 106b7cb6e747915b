//! The JSON documents: what `--json` prints, with the version and the schema of each.
//!
//! A run prints one document, made of a head that is the same for all and of what the verb has to tell; only
//! `verify --watch` prints a line for each event. docs/json.md says what is promised.

use clap::ValueEnum;
use penstock_board::KeptBoard;
use penstock_cluster::KeptCluster;
use penstock_model::{
    Inventory, Located, inventory::INVENTORY_VERSION, measurement::run_comparison::RunComparison,
};
use penstock_report::{Evidence, evidence::EVIDENCE_VERSION, metrics::Snapshot};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    arguments::{Audit, Board, ClusterVerb, Report, Scan, Undo, Verb, Verify},
    commands::{
        apply, audit, check, console, export, generate, guard, import, plan, report, status, undo, verify,
    },
    remote::summary,
    runtime::watch,
    status::Status,
};

/// The kinds of document, each with a schema: `penstock schema --of KIND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Kind {
    /// `scan`: the inventory, which `--inventory` reads.
    Scan,
    /// `scan --as-model`.
    ScanModel,
    /// `audit`.
    Audit,
    /// `audit --as-tuned`.
    AuditTuned,
    /// `check`.
    Check,
    /// `generate`.
    Generate,
    /// `export`.
    Export,
    /// `import`.
    Import,
    /// `plan`.
    Plan,
    /// `apply`.
    Apply,
    /// `start`.
    Start,
    /// `stop`.
    Stop,
    /// `undo`.
    Undo,
    /// `undo --list`.
    Runs,
    /// `confirm`.
    Confirm,
    /// `verify`.
    Verify,
    /// A line of `verify --watch`.
    Watch,
    /// `status`.
    Status,
    /// `metrics`.
    Metrics,
    /// `console` without a guest.
    Consoles,
    /// `measure`: the evidence of the run.
    Measure,
    /// `rehearse`: the evidence of the run.
    Rehearse,
    /// `report` of one run: its evidence.
    Report,
    /// `report` of two runs.
    Comparison,
    /// `report --redact`.
    Redacted,
    /// `report --latencies`.
    Latencies,
    /// `board up`, `board reset`, `board down`.
    Board,
    /// `board image`.
    BoardImage,
    /// `board list`.
    Boards,
    /// `board cluster up`.
    ClusterUp,
    /// `board cluster down`.
    Cluster,
    /// `board cluster list`.
    Clusters,
    /// `board cluster prepare`.
    ClusterParts,
    /// Any verb on several machines with `--host`.
    Hosts,
    /// Any verb that failed before it had anything to tell.
    Error,
}

/// What every document begins with.
#[derive(Debug, Serialize, JsonSchema)]
struct Head {
    /// The kind of document.
    kind: String,
    /// The version of this kind. Within one keys are added, and none is renamed, removed, or given another meaning.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    /// The exit status (docs/exit-status.md).
    exit: u8,
    /// The name of the exit status.
    status: &'static str,
    /// What went wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Trouble>,
    /// Messages about files, with their places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    diagnostics: Vec<Located>,
}

/// One thing that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trouble {
    /// What was attempted and failed.
    pub message: String,
    /// Why, outermost first.
    pub causes: Vec<String>,
    /// What to do about it.
    pub hints: Vec<String>,
}

/// What every line of a stream begins with.
#[derive(Debug, Serialize, JsonSchema)]
struct LineHead {
    /// The kind of line.
    kind: String,
    /// The version of this kind.
    version: u32,
}

/// `scan --as-model`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ScannedModel {
    /// The text of the model.
    pub model: String,
}

/// `board up`, `reset`, `down`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OneBoard {
    /// The name of the board.
    pub board: String,
    /// Where the model is on it, if it was brought up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// `board image`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BoardImage {
    /// What it was made from.
    pub digest: String,
    /// Where it is.
    pub directory: std::path::PathBuf,
    /// With `--from`, whether it was unpacked from that file; not if it was there already. The file is then shown to be the one that is meant,
    /// and nothing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpacked: Option<bool>,
    /// The file that it was written to, with `--to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packed: Option<PackedImage>,
}

/// A board image as a file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PackedImage {
    /// Where it is.
    pub file: std::path::PathBuf,
    /// Its SHA-256, in lower-case hexadecimal.
    pub sha256: String,
}

/// `board list`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Boards {
    /// The boards that run.
    pub boards: Vec<KeptBoard>,
}

/// `board cluster up`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ClusterUp {
    /// The cluster.
    pub cluster: KeptCluster,
    /// Where the model is on each node.
    pub model: String,
    /// How long it took until all nodes were Ready, without building what all clusters share.
    pub seconds: f64,
}

/// `board cluster down`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OneCluster {
    /// The name of the cluster.
    pub cluster: String,
}

/// `board cluster list`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Clusters {
    /// The clusters that there are.
    pub clusters: Vec<KeptCluster>,
}

/// `board cluster prepare`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ClusterParts {
    /// etcd, the control plane, kubelet, kubectl and kwok, as one program.
    pub program: std::path::PathBuf,
    /// The disk of nodes.
    pub disk: std::path::PathBuf,
}

/// A verb that failed before it had anything to tell.
#[derive(Debug, Serialize, JsonSchema)]
struct Nothing {
    /// The kind of document that it would have been; `null` for a command line that was not understood.
    of: Option<String>,
}

impl Kind {
    /// Its name, in documents and on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What a verb prints with `--json`; `None` for what prints something else, or nothing.
    pub fn of(verb: &Verb) -> Option<Kind> {
        Some(match verb {
            Verb::Scan(Scan { as_model: true, .. }) => Kind::ScanModel,
            Verb::Scan(_) => Kind::Scan,
            Verb::Audit(Audit { as_tuned: true, .. }) => Kind::AuditTuned,
            Verb::Audit(_) => Kind::Audit,
            Verb::Check(_) => Kind::Check,
            Verb::Generate(_) => Kind::Generate,
            Verb::Export(_) => Kind::Export,
            Verb::Import(_) => Kind::Import,
            Verb::Plan(_) => Kind::Plan,
            Verb::Apply(_) => Kind::Apply,
            Verb::Verify(Verify { watch: true, .. }) => Kind::Watch,
            Verb::Verify(_) => Kind::Verify,
            Verb::Start(_) => Kind::Start,
            Verb::Stop(_) => Kind::Stop,
            Verb::Confirm(_) => Kind::Confirm,
            Verb::Undo(Undo { list: true, .. }) => Kind::Runs,
            Verb::Undo(_) => Kind::Undo,
            Verb::Status(_) => Kind::Status,
            Verb::Metrics(_) => Kind::Metrics,
            Verb::Console(console) if console.guest.is_none() => Kind::Consoles,
            Verb::Measure(measure) if !measure.events => Kind::Measure,
            Verb::Rehearse(_) => Kind::Rehearse,
            Verb::Report(Report { redact: true, .. }) => Kind::Redacted,
            Verb::Report(Report { latencies: Some(_), .. }) => Kind::Latencies,
            Verb::Report(report) if report.runs.len() == 2 => Kind::Comparison,
            Verb::Report(_) => Kind::Report,
            Verb::Board(Board::Image(_)) => Kind::BoardImage,
            Verb::Board(Board::List) => Kind::Boards,
            Verb::Board(Board::Up { .. } | Board::Reset { .. } | Board::Down { .. }) => Kind::Board,
            Verb::Board(Board::Cluster(ClusterVerb::Up { .. })) => Kind::ClusterUp,
            Verb::Board(Board::Cluster(ClusterVerb::Down { .. })) => Kind::Cluster,
            Verb::Board(Board::Cluster(ClusterVerb::List)) => Kind::Clusters,
            Verb::Board(Board::Cluster(ClusterVerb::Prepare)) => Kind::ClusterParts,
            // A guest's own bytes, a shell's, another tool's documents, and what nobody types.
            Verb::Console(_)
            | Verb::Measure(_)
            | Verb::Board(Board::Ssh { .. } | Board::Console { .. })
            | Verb::Board(Board::Cluster(ClusterVerb::Kubeconfig { .. } | ClusterVerb::Kubectl { .. }))
            | Verb::Schema(_)
            | Verb::Completions(_)
            | Verb::Cni
            | Verb::Inside(_)
            | Verb::Guard(_)
            | Verb::AtBoot(_)
            | Verb::EmbeddedSwitch(_)
            | Verb::FollowFilters(_)
            | Verb::ForwardConnection(_) => return None,
        })
    }

    /// The version of what it prints.
    pub fn version(self) -> u32 {
        match self {
            Kind::Scan => INVENTORY_VERSION,
            Kind::Measure | Kind::Rehearse | Kind::Report => EVIDENCE_VERSION,
            _ => 1,
        }
    }

    /// Whether what it prints says its version itself, being a file of its own too.
    fn says_its_version(self) -> bool {
        matches!(self, Kind::Scan | Kind::Measure | Kind::Rehearse | Kind::Report)
    }

    /// Whether it is a line of many.
    pub fn is_a_line(self) -> bool {
        self == Kind::Watch
    }

    /// Its JSON Schema (draft 2020-12): what a reader can rely on. Keys may be added.
    pub fn schema(self) -> Value {
        match self {
            Kind::Scan => self.schema_of::<Inventory>(),
            Kind::ScanModel => self.schema_of::<ScannedModel>(),
            Kind::Audit => self.schema_of::<audit::Audited<'_>>(),
            Kind::AuditTuned => self.schema_of::<audit::AuditProfile>(),
            Kind::Check => self.schema_of::<check::Checks>(),
            Kind::Generate => self.schema_of::<generate::Generated>(),
            Kind::Export => self.schema_of::<export::ExportedModel>(),
            Kind::Import => self.schema_of::<import::ImportedModel>(),
            Kind::Plan => self.schema_of::<plan::PlanDocument<'_>>(),
            Kind::Apply => self.schema_of::<apply::Applied>(),
            Kind::Start | Kind::Stop | Kind::Undo => self.schema_of::<apply::Carried>(),
            Kind::Runs => self.schema_of::<undo::ListOfRuns>(),
            Kind::Confirm => self.schema_of::<guard::Confirmed>(),
            Kind::Verify => self.schema_of::<verify::Verified>(),
            Kind::Watch => self.schema_of::<watch::lines::Line<'_>>(),
            Kind::Status => self.schema_of::<status::StatusDocument>(),
            Kind::Metrics => self.schema_of::<Snapshot>(),
            Kind::Consoles => self.schema_of::<console::Consoles>(),
            Kind::Measure | Kind::Rehearse | Kind::Report => self.schema_of::<Evidence>(),
            Kind::Comparison => self.schema_of::<RunComparison>(),
            Kind::Redacted => self.schema_of::<report::redacted::Redacted>(),
            Kind::Latencies => self.schema_of::<report::latencies::WrittenLatencies>(),
            Kind::Board => self.schema_of::<OneBoard>(),
            Kind::BoardImage => self.schema_of::<BoardImage>(),
            Kind::Boards => self.schema_of::<Boards>(),
            Kind::ClusterUp => self.schema_of::<ClusterUp>(),
            Kind::Cluster => self.schema_of::<OneCluster>(),
            Kind::Clusters => self.schema_of::<Clusters>(),
            Kind::ClusterParts => self.schema_of::<ClusterParts>(),
            Kind::Hosts => self.schema_of::<summary::Hosts>(),
            Kind::Error => self.schema_of::<Nothing>(),
        }
    }

    /// The schema of a document whose body is a `T`.
    fn schema_of<T: JsonSchema>(self) -> Value {
        let of = |schema: schemars::Schema| schema.to_value();
        let generator = || SchemaSettings::draft2020_12().for_serialize().into_generator();
        let mut body = of(generator().into_root_schema_for::<T>());
        let head = match self.is_a_line() {
            true => of(generator().into_root_schema_for::<LineHead>()),
            false => of(generator().into_root_schema_for::<Head>()),
        };
        let Value::Object(body) = &mut body else { return head };
        for key in ["properties", "$defs"] {
            let Some(Value::Object(more)) = head.get(key).cloned() else { continue };
            let there = body.entry(key).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(there) = there {
                there.extend(more);
            }
        }
        let required = body.entry("required").or_insert_with(|| json!([]));
        if let Value::Array(required) = required {
            let mut wanted = vec!["kind", "version"];
            if !self.is_a_line() {
                wanted.extend(["exit", "status"]);
            }
            let new: Vec<Value> =
                wanted.into_iter().map(Value::from).filter(|key| !required.contains(key)).collect();
            required.extend(new);
        }
        body.insert("type".to_owned(), json!("object"));
        body.insert(
            "title".to_owned(),
            json!(format!("penstock {}, version {}", self.name(), self.version())),
        );
        if let Some(Value::Object(properties)) = body.get_mut("properties") {
            properties.insert("kind".to_owned(), json!({"const": self.name()}));
            properties.insert("version".to_owned(), json!({"const": self.version()}));
            if !self.is_a_line() {
                let names: Vec<&str> = Status::ALL.iter().map(|status| status.name()).collect();
                properties.insert("status".to_owned(), json!({"enum": names}));
            }
        }
        Value::Object(body.clone())
    }

    /// A line of a stream, without its newline.
    ///
    /// # Errors
    ///
    /// When `value` has no form in JSON.
    pub fn line(self, value: &impl Serialize) -> Result<String, serde_json::Error> {
        let head = serde_json::to_string(&LineHead { kind: self.name(), version: self.version() })?;
        Ok(joined(&head, &[serde_json::to_string(value)?]))
    }
}

/// Whether this is a document of that kind.
pub fn is_of(text: &str, kind: Kind) -> bool {
    #[derive(serde::Deserialize)]
    struct Named {
        kind: Option<String>,
    }
    serde_json::from_str::<Named>(text)
        .is_ok_and(|named| named.kind.is_some_and(|named| named == kind.name()))
}

/// What a run has to tell, until it is printed at its end.
#[derive(Debug, Default)]
pub struct Document {
    kind: Option<Kind>,
    /// What the verb has told, serialised; `None` when it has not come to that.
    body: Option<String>,
    /// More of the same, each under a key of its own.
    parts: Vec<(&'static str, String)>,
    /// The key under which the next is.
    next: Option<&'static str>,
    /// A document that another Penstock has made.
    whole: Option<String>,
    errors: Vec<Trouble>,
    diagnostics: Vec<Located>,
}

impl Document {
    /// The document of a verb.
    pub fn of(kind: Option<Kind>) -> Document {
        Document { kind, ..Document::default() }
    }

    /// Makes it a document of another kind.
    pub fn become_kind(&mut self, kind: Kind) {
        self.kind = Some(kind);
    }

    /// Takes in what the verb tells.
    ///
    /// # Errors
    ///
    /// When `value` has no form in JSON.
    pub fn tell(&mut self, value: &impl Serialize) -> Result<(), serde_json::Error> {
        let text = serde_json::to_string_pretty(value)?;
        match self.next.take() {
            Some(key) => self.parts.push((key, text)),
            None => {
                debug_assert!(self.body.is_none(), "a run has one document");
                self.body = Some(text);
            }
        }
        Ok(())
    }

    /// What is told next stands under `key`.
    pub fn under(&mut self, key: &'static str) {
        self.next = Some(key);
    }

    /// Takes a document of another Penstock for the run's.
    pub fn pass_on(&mut self, text: String) {
        self.whole = Some(text);
    }

    /// Takes in what went wrong.
    pub fn fail(&mut self, causes: &[String], hints: &[String]) {
        let mut causes = causes.iter().cloned();
        if let Some(message) = causes.next() {
            self.errors.push(Trouble { message, causes: causes.collect(), hints: hints.to_vec() });
        }
    }

    /// Takes in messages about a file.
    pub fn diagnose(&mut self, found: Vec<Located>) {
        self.diagnostics.extend(found);
    }

    /// The messages so far, which are then not told again.
    pub fn take_diagnostics(&mut self) -> Vec<Located> {
        std::mem::take(&mut self.diagnostics)
    }

    /// What went wrong so far, which is then not told again.
    pub fn take_errors(&mut self) -> Vec<Trouble> {
        std::mem::take(&mut self.errors)
    }

    /// The document of a run that ended so; `None` where none is printed.
    ///
    /// # Errors
    ///
    /// When the head has no form in JSON, or of a stream what was told before is none.
    pub fn end(self, status: Status) -> Result<Option<String>, serde_json::Error> {
        if self.whole.is_some() {
            return Ok(self.whole);
        }
        let told = self.kind.filter(|kind| self.body.is_some() && !kind.is_a_line());
        let bad = !matches!(status, Status::Holds | Status::DoesNotHold | Status::WouldChange);
        let (kind, body) = match (told, self.body) {
            (Some(kind), Some(body)) => (kind, body),
            _ if bad || !self.errors.is_empty() => {
                let of = self.kind.map(Kind::name);
                (Kind::Error, serde_json::to_string_pretty(&Nothing { of })?)
            }
            _ => return Ok(None),
        };
        let mut errors = self.errors;
        if bad && errors.is_empty() {
            let message = status.words().to_owned();
            errors.push(Trouble { message, causes: Vec::new(), hints: Vec::new() });
        }
        let head = Head {
            kind: kind.name(),
            version: (!kind.says_its_version()).then(|| kind.version()),
            exit: status.code(),
            status: status.name(),
            errors,
            diagnostics: self.diagnostics,
        };
        let mut all = vec![body];
        for (key, text) in self.parts {
            all.push(format!("{{\n  \"{key}\": {}\n}}", text.replace('\n', "\n  ")));
        }
        // In a stream each line is a document.
        if self.kind.is_some_and(Kind::is_a_line) {
            let text = joined(&serde_json::to_string_pretty(&head)?, &all);
            let value: Value = serde_json::from_str(&text)?;
            return Ok(Some(value.to_string()));
        }
        Ok(Some(joined(&serde_json::to_string_pretty(&head)?, &all)))
    }
}

/// One object of several, all as text: what was serialised once is not read again.
fn joined(head: &str, bodies: &[String]) -> String {
    let mut text = head.trim_end_matches('}').trim_end().to_owned();
    for body in bodies {
        let inner = body.trim().strip_prefix('{').and_then(|body| body.strip_suffix('}')).unwrap_or_default();
        let inner = inner.trim_end();
        if !inner.trim().is_empty() {
            text.push(',');
            text.push_str(inner);
        }
    }
    let end = if head.contains('\n') { "\n}" } else { "}" };
    text + end
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use penstock_testkit::golden;

    use super::*;

    /// What docs/json.md says of a kind beyond the words that `penstock schema --help` has for it.
    const MORE: [(Kind, &str); 8] = [
        (Kind::Check, ", for bad models too"),
        (Kind::Apply, "; with `--persist` what was done for the next boots is under `persist`"),
        (Kind::Watch, " (JSON Lines), with `kind` and `version` in each ([watch.md](watch.md))"),
        (
            Kind::Status,
            "; the NICs that a guest owns are under `nics` of it, each with its uplink, `path` where it is at taps or a container's, whose \
             `device` is told too; what a VM has asked for by itself is under `asked` ([tenant-nics.md](tenant-nics.md))",
        ),
        (Kind::Measure, " ([reports.md](reports.md))"),
        (Kind::Rehearse, " ([reports.md](reports.md))"),
        (Kind::Report, " ([reports.md](reports.md))"),
        (Kind::Hosts, ": `hosts` has the document of each ([hosts.md](hosts.md))"),
    ];

    #[test]
    fn the_page_of_json_documents_has_every_kind_in_the_words_of_the_command_line() {
        let mut table = "| kind | version | printed by |\n|---|---|---|\n".to_owned();
        for kind in Kind::value_variants() {
            let help = kind.to_possible_value().and_then(|value| value.get_help().cloned()).unwrap();
            let more = MORE.iter().find(|(of, _)| of == kind).map_or("", |(_, more)| more);
            table += &format!("| `{}` | {} | {help}{more} |\n", kind.name(), kind.version());
        }
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        golden::compare_part(Path::new(page), "kinds", &table);
    }

    #[test]
    fn every_kind_has_a_published_schema_and_a_name_of_its_own() {
        for kind in Kind::value_variants() {
            let schema = kind.schema();
            let path = format!("{}/../../schema/{}.schema.json", env!("CARGO_MANIFEST_DIR"), kind.name());
            golden::compare(Path::new(&path), &(serde_json::to_string_pretty(&schema).unwrap() + "\n"));
            assert_eq!(schema["properties"]["kind"]["const"], Value::from(kind.name()));
            jsonschema::meta::validate(&schema).unwrap();
        }
    }

    #[test]
    fn no_body_has_a_key_of_the_head() {
        let head = ["kind", "exit", "status", "errors", "diagnostics"];
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let of = |schema: schemars::Schema| schema.to_value();
        for body in [
            of(generator.clone().into_root_schema_for::<Inventory>()),
            of(generator.clone().into_root_schema_for::<Evidence>()),
            of(generator.clone().into_root_schema_for::<apply::Applied>()),
            of(generator.clone().into_root_schema_for::<plan::PlanDocument<'_>>()),
            of(generator.clone().into_root_schema_for::<audit::Audited<'_>>()),
            of(generator.clone().into_root_schema_for::<RunComparison>()),
            of(generator.clone().into_root_schema_for::<verify::Verified>()),
            of(generator.clone().into_root_schema_for::<Snapshot>()),
            of(generator.into_root_schema_for::<status::StatusDocument>()),
        ] {
            for key in head {
                assert!(body["properties"].get(key).is_none(), "{key}: {body}");
            }
        }
    }

    #[test]
    fn what_is_told_stands_after_the_head_and_parts_under_their_keys() {
        let mut document = Document::of(Some(Kind::ScanModel));
        document.tell(&ScannedModel { model: "a: {b}\n}".to_owned() }).unwrap();
        document.under("persist");
        document.tell(&json!({"steps": [1], "empty": {}})).unwrap();
        let text = document.end(Status::Holds).unwrap().unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value,
            json!({"kind": "scan-model", "version": 1, "exit": 0, "status": "holds", "model": "a: {b}\n}",
                "persist": {"steps": [1], "empty": {}}})
        );
        assert!(text.starts_with("{\n  \"kind\": \"scan-model\",\n  \"version\": 1,\n"), "{text}");
    }

    #[test]
    fn what_fails_has_a_document_too() {
        let mut document = Document::of(Some(Kind::Plan));
        document.fail(&["no".to_owned(), "why".to_owned()], &["do".to_owned()]);
        let value: Value = serde_json::from_str(&document.end(Status::Busy).unwrap().unwrap()).unwrap();
        assert_eq!(
            value,
            json!({"kind": "error", "version": 1, "exit": 9, "status": "busy", "of": "plan",
                "errors": [{"message": "no", "causes": ["why"], "hints": ["do"]}]})
        );
        assert!(Document::of(None).end(Status::Holds).unwrap().is_none());
    }
}
