//! Each model of this repository through the schema and through the reader: whatever the reader takes the schema takes.

#![allow(clippy::disallowed_methods, reason = "a test reads its own folders")]

#[path = "schema/beyond_a_schema.rs"]
mod beyond_a_schema;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use beyond_a_schema::BEYOND_A_SCHEMA;
use penstock_model::{MODELINE, Source, parse, schema};
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every example and every golden model, by its path.
fn models() -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let examples = fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let golden = fs::read_dir(root().join("crates/model/tests/golden")).unwrap();
    let golden = golden.map(|entry| entry.unwrap().path().join("model.yaml"));
    for path in examples.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).chain(golden)
    {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        found.insert(name, fs::read(&path).unwrap());
    }
    assert!(found.len() > 80, "{} models", found.len());
    found
}

/// A file as an editor's language server has it: YAML 1.2's core schema gives each plain scalar a type (section 10.3.2). `None` for what
/// is no YAML.
fn typed(text: &str) -> Option<Value> {
    let mut anchors: BTreeMap<usize, Value> = BTreeMap::new();
    let mut open: Vec<(usize, Vec<Value>, bool)> = Vec::new();
    let mut whole = None;
    let mut parser = Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    while let Some(event) = parser.next_event() {
        let (anchor, value) = match event.ok()?.0 {
            Event::Scalar(text, ScalarStyle::Plain, anchor, _) => (anchor, plain(&text)),
            Event::Scalar(text, _, anchor, _) => (anchor, json!(text)),
            Event::SequenceStart(anchor, _) => {
                open.push((anchor, Vec::new(), false));
                continue;
            }
            Event::MappingStart(anchor, _) => {
                open.push((anchor, Vec::new(), true));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (anchor, items, mapping) = open.pop()?;
                let pairs =
                    items.chunks(2).map(|pair| (key(&pair[0]), pair.get(1).cloned().unwrap_or_default()));
                (
                    anchor,
                    if mapping { Value::Object(pairs.collect::<Map<_, _>>()) } else { Value::Array(items) },
                )
            }
            Event::Alias(anchor) => (0, anchors.get(&anchor)?.clone()),
            _ => continue,
        };
        if anchor != 0 {
            anchors.insert(anchor, value.clone());
        }
        // Aliases of aliases multiply.
        if serde_json::to_string(&value).ok()?.len() > 1 << 20 {
            return None;
        }
        match open.last_mut() {
            Some((_, items, _)) => items.push(value),
            None => whole = Some(value),
        }
    }
    whole
}

fn key(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn plain(text: &str) -> Value {
    let digits = |text: &str, radix| i64::from_str_radix(text, radix).ok().map(Value::from);
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => json!(true),
        "false" | "False" | "FALSE" => json!(false),
        _ if text.strip_prefix("0x").is_some_and(|rest| i64::from_str_radix(rest, 16).is_ok()) => {
            digits(&text[2..], 16).unwrap()
        }
        _ if text.strip_prefix("0o").is_some_and(|rest| i64::from_str_radix(rest, 8).is_ok()) => {
            digits(&text[2..], 8).unwrap()
        }
        _ if text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte)) => {
            let number =
                text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<f64>().map(Value::from));
            number.unwrap_or_else(|_| json!(text))
        }
        _ => json!(text),
    }
}

fn refusals(validator: &jsonschema::Validator, model: &Value) -> Vec<String> {
    validator.iter_errors(model).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn the_schema_takes_what_the_reader_takes_and_refuses_what_a_pattern_can() {
    let validator = jsonschema::validator_for(&schema()).expect("the schema is one");
    let mut too_narrow = String::new();
    let mut beyond = BTreeSet::new();
    let mut refused = 0;
    for (name, bytes) in models() {
        let Ok(source) = Source::from_bytes("m.yaml", &bytes) else { continue };
        let good = parse(&source).is_ok();
        let Some(model) = typed(&source.text) else {
            assert!(!good, "{name} is no YAML here");
            continue;
        };
        let wrong = refusals(&validator, &model);
        match (good, wrong.is_empty()) {
            (true, false) => too_narrow.push_str(&format!("{name}:\n  {}\n", wrong.join("\n  "))),
            (false, true) => {
                beyond.insert(name.split('/').rev().nth(1).unwrap_or_default().to_owned());
            }
            (false, false) => refused += 1,
            (true, true) => {}
        }
    }
    assert!(too_narrow.is_empty(), "the reader takes these, and the schema refuses them:\n{too_narrow}");
    let known = BEYOND_A_SCHEMA.iter().flat_map(|(_, cases)| *cases).map(|case| (*case).to_owned());
    let known: BTreeSet<String> = known.collect();
    let unknown: Vec<_> = beyond.difference(&known).collect();
    assert!(unknown.is_empty(), "these are refused by the reader alone, and by no known reason: {unknown:?}");
    let stale: Vec<_> = known.difference(&beyond).collect();
    assert!(stale.is_empty(), "these are not refused by the reader alone: {stale:?}");
    assert!(refused >= 12, "only {refused} bad models are refused");
}

/// Values at the edges, one at a time: what the reader takes, the schema takes; what a pattern or range can refuse it refuses.
#[test]
fn each_kind_of_value_is_as_wide_in_the_schema_as_in_the_reader() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let values = [
        "",
        "~",
        "on",
        "On",
        "OFF",
        "oN",
        "yes",
        "true",
        "\"true\"",
        "7",
        "\"7\"",
        "+7",
        "007",
        "0x7",
        "0o7",
        "-1",
        "4094",
        "4095",
        "65535",
        "65536",
        "7.5",
        "1e3",
        "99999999999999999999",
        "eth0",
        "name with spaces",
        "-eth",
        "..",
        "NET0",
        "NET0#1",
        "NET0#16383",
        "NET0#16384",
        "NET0#x",
        "NET0#",
        "02:00:00:00:01:04",
        "02-00-00-00-01-04",
        "02:00:00:00:01",
        "10:20:30:40:50:59",
        "04:00.0",
        "0000:04:1f.7",
        "04:20.0",
        "04:00.8",
        "00-1b-21-ff-ff-8a-3c-44",
        "0011223344556677",
        "10.0.0.1/24",
        "10.0.0.1/33",
        "10.0.0.256/24",
        "10.0.0.1",
        "fd00::4/64",
        "fd00::4/129",
        "[10.0.0.1/24, fd00::4/64]",
        "[]",
        "[2, 3]",
        "[2-3, \"8\"]",
        "2-3,8",
        "3-1",
        "2-03",
        "512MiB",
        "512 MiB",
        "512M",
        "1GB",
        "0512MiB",
        "1.5GiB",
        "40%",
        "0%",
        "101%",
        "2.4GHz",
        "performance",
        "2.4",
        "802.1Q",
        "802.1q",
        "802.1AD",
        "802.1x",
        "enable",
        "vm",
        "lxc",
        "{}",
        "[on]",
        "builtin",
        "/dev/x",
        "fifo",
    ];
    let keys = [
        "nics: {NET0: {vfs: @}}",
        "nics: {NET0: {numVfs: @}}",
        "nics: {NET0: {loopback: @}}",
        "nics: {NET0: {mtu: @}}",
        "nics: {NET0: {interface: @}}",
        "nics: {NET0: {address: @}}",
        "nics: {NET0: {match: {mac: @}}}",
        "nics: {NET0: @}",
        "nics: {NET0: {match: {bdf: @}}}",
        "nics: {NET0: {match: {serial: @}}}",
        "nics: {NET0: {match: {slot: @}}}",
        "nics: {NET0: {match: {port: @}}}",
        "nics: {NET0: {match: {driver: @}}}",
        "nics: {NET0: {match: @}}",
        "nics: {NET0: {defaults: {vlan: @}}}",
        "nics: {NET0: {defaults: {spoof-check: @}}}",
        "nics: {NET0: {best_effort: @}}",
        "nics: {NET0: }\nmachine: @",
        "nics: {NET0: }\nguests: {a: @}",
        "nics: {NET0: }\nguests: @",
        "nics: @",
        "nics: {NET0: }\nguests: {a: {kind: @}}",
        "nics: {NET0: }\nguests: {a: {memory: @}}",
        "nics: {NET0: }\nguests: {a: {cpus: @}}",
        "nics: {NET0: }\nguests: {a: {pin: @}}",
        "nics: {NET0: }\nguests: {a: {pin: 5, exclusive: @}}",
        "nics: {NET0: }\nguests: {a: {pin: 5, realtime: @}}",
        "nics: {NET0: }\nguests: {a: {functions: [@]}}",
        "nics: {NET0: }\nguests: {a: {functions: @}}",
        "nics: {NET0: }\nguests: {a: {functions: [{vf: @}]}}",
        "nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, mac: @}]}}",
        "nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, vlan: @}]}}",
        "nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, vlan: 5, vlanProto: @}]}}",
        "nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, vlan: 5, qos: @}]}}",
        "nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, max_tx_rate: @}]}}",
        "nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, link_state: @}]}}",
        "nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, name: @}]}}",
        "nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, addresses: @}]}}",
        "nics: {NET0: }\nguests: {a: {init: @}}",
        "nics: {NET0: }\nguests: {a: {after: @}}",
        "nics: {NET0: }\nguests: {a: {root: @}}",
        "nics: {NET0: }\nguests: {a: {devices: [@]}}",
        "nics: {NET0: }\nguests: {a: {kind: vm, boot: @}}",
        "nics: {NET0: }\nguests: {a: {kind: vm, huge_pages: @}}",
        "nics: {NET0: }\nguests: {a: {kind: vm, ready_within: @}}",
        "nics: {NET0: }\nguests: {a: {kind: vm, command_line: @}}",
        "nics: {NET0: }\nguests: {a: {pin: 5, realtime: {policy: @}}}",
        "nics: {NET0: }\nguests: {a: {pin: 5, realtime: {memory_bandwidth: @}}}",
        "nics: {NET0: }\nrealtime: {isolated: 5, frequency: @}",
        "nics: {NET0: }\nrealtime: {isolated: @}",
        "nics: {NET0: }\nrealtime: {isolated: 5, wake_latency: @}",
        "nics: {NET0: }\nboard: {cables: [@]}",
        "nics: {NET0: }\nboard: @",
        "nics: {NET0: }\nboard: {cables: [[NET0, @]]}",
        "nics: {NET0: }\nboard: {emulation: {NET0: @}}",
        "nics: {NET0: }\nboard: {memory: @}",
        "nics: {NET0: }\nboard: {iommu: @}",
        "nics: {NET0: }\nboard: {nvme_vfs: @}",
        "nics: {NET0: }\nexpect: @",
        "nics: {NET0: }\nmeasure: @",
    ];
    let (mut narrow, mut taken) = (String::new(), 0);
    for key in keys {
        for value in values {
            let text = format!("{}\n", key.replace('@', value));
            let good = parse(&Source::new("m.yaml", text.clone())).is_ok();
            let Some(model) = typed(&text) else { continue };
            let wrong = refusals(&validator, &model);
            taken += usize::from(good);
            if good && !wrong.is_empty() {
                narrow.push_str(&format!("{text}  {}\n", wrong.join("\n  ")));
            }
        }
    }
    assert!(taken > 200, "{taken}");
    assert!(narrow.is_empty(), "the reader takes these, and the schema refuses them:\n{narrow}");
    for bad in [
        "nics: {NET0: {vfs: 99999}}",
        "nics: {NET0: {loopback: yes}}",
        "nics: {NET0: {mtu: 40}}",
        "nics: {NET0: {match: {mac: 02:00}}}",
        "nics: {NET0: {match: {interface: eno1}}}",
        "nics: {NET0: {match: {bdf: '04:00.8'}}}",
        "nics: {NET0: {address: 10.0.0.1}}",
        "nics: {-: }",
        "guests: {a: {memory: 512M}}",
        "guests: {a: {memory: lots}}",
        "guests: {a: {kind: lxc}}",
        "guests: {a: {pin: 3-}}",
        "guests: {a: {functions: [NET0#x]}}",
        "guests: {a: {functions: [NET0#16384]}}",
        "guests: {a: {functions: [null]}}",
        "guests: {a: {functions: [{vf: NET0#1, vlan: 4095}]}}",
        "guests: {a: {functions: [{vf: NET0#1, vlan: -1}]}}",
        "guests: {a: {functions: [{vf: NET0#1, mac: 02:00:00:00:01:zz}]}}",
        "guests: {a: {functions: [{vf: NET0#1, qos: 8}]}}",
        "guests: {a: {functions: [{vf: NET0#1, nonsense: 8}]}}",
        "guests: {a: {realtime: {memory_bandwidth: 101%}}}",
        "board: {cables: [[A, B, C]]}",
        "board: {emulation: {A: e1000}}",
        "nonsense: 1",
    ] {
        assert!(!refusals(&validator, &typed(bad).unwrap()).is_empty(), "{bad} is taken by the schema");
    }
}

#[test]
fn the_schema_in_the_repository_is_the_one_that_penstock_prints_and_each_example_names_it() {
    let path = root().join("schema/model.schema.json");
    let now = format!("{}\n", serde_json::to_string_pretty(&schema()).unwrap());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &now).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == now,
        "schema/model.schema.json: UPDATE_GOLDEN=1 writes it anew"
    );
    assert!(MODELINE.ends_with("/schema/model.schema.json"));
    for (name, bytes) in models().into_iter().filter(|(name, _)| name.starts_with("examples/")) {
        assert!(String::from_utf8(bytes).unwrap().starts_with(&format!("{MODELINE}\n")), "{name}");
    }
}

/// Every key whose value is a number, with its least and its greatest value.
const NUMBERS: [(&str, i128, i128); 26] = [
    ("nics: {NET0: {vfs: @}}", 0, 16384),
    ("nics: {NET0: {mtu: @}}", 68, 65535),
    ("nics: {NET0: {match: {slot: a, port: @}}}", 0, 7),
    ("nics: {NET0: {vfs: 1, defaults: {vlan: @}}}", 0, 4094),
    ("nics: {NET0: {vfs: 1, defaults: {vlan: 5, qos: @}}}", 0, 7),
    ("nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, vlan: @}]}}", 0, 4094),
    ("nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, vlan: 5, qos: @}]}}", 0, 7),
    ("nics: {NET0: {vfs: 1, defaults: {min_tx_rate: @}}}", 0, 4_294_967_295),
    ("nics: {NET0: {vfs: 1, defaults: {max_tx_rate: @}}}", 0, 4_294_967_295),
    ("nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, max_tx_rate: @}]}}", 0, 4_294_967_295),
    ("nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, egress_rate: @}]}}", 0, 4_294_967_295),
    ("nics: {NET0: }\nguests: {a: {functions: [{vf: NET0#1, ingress_rate: @}]}}", 0, 4_294_967_295),
    ("nics: {NET0: }\nguests: {a: {cpus: @}}", 1, 8192),
    ("nics: {NET0: }\nguests: {a: {kind: vm, ready_within: @}}", 1, 86400),
    ("nics: {NET0: }\nguests: {a: {pin: 5, realtime: {policy: fifo, priority: @}}}", 1, 99),
    ("nics: {NET0: }\nguests: {a: {pin: 5, realtime: {cache: @}}}", 1, 32),
    ("nics: {NET0: }\nguests: {a: {pin: 5, realtime: {wake_latency: @}}}", 0, 2_147_483_646),
    ("nics: {NET0: }\nrealtime: {isolated: 5, wake_latency: @}", 0, 2_147_483_646),
    ("nics: {NET0: }\nboard: {cpus: @}", 1, 8192),
    ("nics: {NET0: }\nboard: {nvme_vfs: @}", 1, 127),
    ("drives: {SSD0: {queues: @}}", 1, 65534),
    ("drives: {SSD0: }\nguests: {a: {kind: vm, drives: [{vf: SSD0#0, queues: @}]}}", 1, 65534),
    ("guests: {a: {kind: vm, nics: {n: {vfs: @}}}}", 1, 7),
    ("guests: {a: {kind: vm, nics: {n: {vfs: 1, queues: @}}}}", 1, 16),
    ("guests: {a: {kind: vm, nics: {n: {vfs: 1, queues: 16, workers: @}}}}", 1, 16),
    ("guests: {a: {kind: vm, nics: {n: {vfs: 1, allow: {mac: any, more_macs: @}}}}}", 0, 64),
];

/// The list above cannot know a key that is still to come.
#[test]
fn every_number_of_the_schema_has_a_least_and_a_greatest_value() {
    fn open_ended(path: &str, part: &Value, found: &mut Vec<String>) {
        let kinds = match &part["type"] {
            Value::Array(kinds) => kinds.clone(),
            kind => vec![kind.clone()],
        };
        // Where text is meant a number is a spelling, not a quantity; a size and a serial number have a pattern that ends them.
        let ended = part["pattern"].as_str().is_some_and(|pattern| !pattern.contains("[0-9]*)"));
        let number = kinds.contains(&json!("integer")) && !ended;
        if number && (part["minimum"].is_null() || part["maximum"].is_null()) {
            found.push(path.to_owned());
        }
        match part {
            Value::Object(parts) => {
                parts.iter().for_each(|(key, part)| open_ended(&format!("{path}/{key}"), part, found));
            }
            Value::Array(parts) => parts.iter().for_each(|part| open_ended(path, part, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    open_ended("", &schema(), &mut found);
    assert!(found.is_empty(), "no least or no greatest value: {found:?}");
}

#[test]
fn a_number_out_of_range_is_answered_with_the_range_that_the_schema_has_too() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for (line, least, most) in NUMBERS {
        let with = |value: i128| format!("{}\n", line.replace('@', &value.to_string()));
        for value in [-1, least - 1, most + 1, 1 << 32, 1 << 64, 10_i128.pow(20)] {
            let text = with(value);
            let Err(found) = parse(&Source::new("m.yaml", text.clone())) else { panic!("{text} is taken") };
            let said = found.to_string();
            let range = |said: &str| {
                said.contains(&format!("{least} to {most}")) || said.contains(&format!("at most {most}"))
            };
            // Too few of what there can be none of is said in words.
            let none = least == 1 && value == 0 && !said.contains("out of range");
            assert!(none || range(&said), "{text}  {said}");
            assert!(
                !refusals(&validator, &typed(&text).unwrap()).is_empty(),
                "{text} is taken by the schema"
            );
        }
        for value in [least, most] {
            let text = with(value);
            assert!(
                refusals(&validator, &typed(&text).unwrap()).is_empty(),
                "{text} is refused by the schema"
            );
            let said = parse(&Source::new("m.yaml", text.clone()))
                .err()
                .map(|found| found.to_string())
                .unwrap_or_default();
            assert!(
                !said.contains(" to ") || !said.contains(&format!("{least} to {most}")),
                "{text}  {said}"
            );
        }
    }
}
