//! What guests are told. `tests/generate/published` holds what the shipped templates make for the published machine;
//! `UPDATE_GOLDEN=1` writes it anew, and the difference is to be read before it is committed.

#![allow(clippy::disallowed_methods, reason = "a test reads its own folders and runs a compiler")]

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use indexmap::IndexMap;
use penstock_model::{Bdf, Inventory, Model, Outcome, Source, Template};
use penstock_render::{
    FoundFile, FoundMachine, GenerateError, GeneratedFile, MOST_BYTES, paths, render, verdicts,
};
use penstock_testkit::needs;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/generate");

fn parse(text: &str) -> Model {
    let source = Source::new("model.yaml", text);
    let parsed = penstock_model::parse(&source);
    parsed.unwrap_or_else(|error| panic!("{}", error.render(&source, false))).model
}

fn published() -> Model {
    parse(&fs::read_to_string(format!("{FOLDER}/model.yaml")).unwrap())
}

/// A guest with these functions and one template of the user's.
fn with_template(text: &str) -> Model {
    let mut model = published();
    model.guests["pf0"].generate.clear();
    model.guests["rt-2"].generate.truncate(1);
    model.guests["rt-2"].generate[0].template =
        Template::File { path: "templates/own.txt.j2".to_owned(), text: text.to_owned() };
    model
}

fn own(text: &str) -> Result<String, GenerateError> {
    render(&with_template(text), None).map(|mut files| files.remove(0).text)
}

/// The message that a wrong template gives, as a person reads it.
fn message(text: &str) -> String {
    match own(text) {
        Err(error @ GenerateError::Template(_)) => error.styled(&Source::new("model.yaml", "")).to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_published_machine_is_told_what_it_was() {
    let files = render(&published(), None).unwrap();
    let mut wrong = String::new();
    for file in &files {
        let golden = Path::new(FOLDER).join("published").join(&file.path);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(golden.parent().unwrap()).unwrap();
            fs::write(&golden, &file.text).unwrap();
        } else if fs::read_to_string(&golden).ok().as_deref() != Some(&file.text) {
            wrong.push_str(&format!("== {}\n{}\n", golden.display(), file.text));
        }
    }
    assert_eq!(files.iter().map(|file| file.path.clone()).collect::<Vec<_>>(), paths(&published()));
    assert!(files.len() > 10, "{files:?}");
    assert!(wrong.is_empty(), "these are not as expected; they are now:\n{wrong}");
    assert_eq!(files, render(&published(), None).unwrap(), "twice the same model, twice the same bytes");
}

/// Compiles a header with a use of everything in it; the program's own checks must hold too.
fn compiles(header: &GeneratedFile, main: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("table.h"), &header.text).unwrap();
    let source = format!("#include \"table.h\"\n#include \"table.h\"\n#include <string.h>\n{main}");
    for (compiler, name, standard) in [("cc", "main.c", "-std=c99"), ("c++", "main.cc", "-std=c++11")] {
        // Rust itself links with `cc`, so that it is there; a C++ compiler need not be where the install step has not run.
        if let Some(lack) = needs::programs(&[compiler]).filter(|_| compiler != "cc") {
            assert!(!lack.fails(), "{lack}");
            penstock_testkit::skip::part(lack);
            continue;
        }
        let file = folder.path().join(name);
        fs::write(&file, &source).unwrap();
        let program = folder.path().join("program");
        let made = Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-o"])
            .args([&program, &file])
            .output();
        let made = made.unwrap_or_else(|error| panic!("{compiler}: {error}"));
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{compiler}: {said}\n{}", header.text);
        let status = Command::new(&program).status().unwrap();
        assert!(
            status.success(),
            "{compiler}: the table is not what it should be: {status}\n{}",
            header.text
        );
    }
}

#[test]
fn the_header_compiles_as_c_and_as_cpp_and_says_what_the_model_says() {
    let files = render(&published(), None).unwrap();
    let header = |guest: &str| {
        files.iter().find(|file| file.guest.as_str() == guest && file.path.ends_with(".h")).unwrap()
    };
    compiles(
        header("rt-2"),
        r#"
static const uint8_t macs[PENSTOCK_NIC_COUNT][6] = PENSTOCK_MAC_LIST;
int main(void) {
    const struct penstock_nic *last = &penstock_nics[PENSTOCK_NIC_COUNT - 1];
    const uint8_t mac[6] = {0x02, 0, 0, 0, 0x01, 0x05};
    const uint8_t ip[4] = {10, 20, 31, 205};
    if (strcmp(PENSTOCK_MACHINE, "xeon-d") != 0 || strcmp(PENSTOCK_GUEST, "rt-2") != 0) return 1;
    if (PENSTOCK_NIC_COUNT != 5 || PENSTOCK_VF_COUNT != 0 || PENSTOCK_ADDRESSES_MAX != 2) return 2;
    if (strcmp(last->function, "NET1#5") != 0 || strcmp(last->interface_name, "eth4") != 0) return 3;
    if (memcmp(last->mac, mac, 6) != 0 || memcmp(macs[4], mac, 6) != 0) return 4;
    if (last->vf != 5 || last->vlan != 100 || last->mtu != 9000 || last->address_count != 2) return 5;
    if (last->addresses[0].family != 4 || last->addresses[0].prefix != 24) return 6;
    if (memcmp(last->addresses[0].bytes, ip, 4) != 0) return 7;
    if (last->addresses[1].family != 6 || last->addresses[1].bytes[15] != 5) return 8;
    if (penstock_nics[0].mtu != 0 || penstock_nics[0].vlan != 0) return 9;
    return 0;
}
"#,
    );
    compiles(
        header("pf0"),
        r#"
int main(void) {
    if (PENSTOCK_NIC_COUNT != 2 || penstock_nics[0].vf != PENSTOCK_IS_PF) return 1;
    if (PENSTOCK_VF_COUNT != 7 || penstock_vfs[2].vf != 2) return 2;
    if (strcmp(penstock_vfs[2].owner, "rt-2") != 0 || strcmp(penstock_vfs[6].owner, "") != 0) return 3;
    if (penstock_vfs[1].mac[5] != 1 || penstock_vfs[1].mac[0] != 2) return 4;
    return penstock_nics[1].address_count == 0 ? 0 : 5;
}
"#,
    );
    compiles(header("empty"), "int main(void) { return PENSTOCK_NIC_COUNT + PENSTOCK_VF_COUNT; }\n");
}

#[test]
fn names_that_the_kernel_takes_break_out_of_nothing() {
    let hostile = r#"a"};*??'\&<,[x"#;
    let mut model = published();
    model.machine = "\"\n*/ #error \\ ??/\"}]".to_owned();
    let guest = &mut model.guests["rt-2"];
    guest.functions[0].interface = hostile.parse().unwrap();
    let files = render(&model, None).unwrap();
    let of = |end: &str| {
        files.iter().find(|file| file.guest.as_str() == "rt-2" && file.path.ends_with(end)).unwrap()
    };
    let quoted = serde_json::to_string(model.guests["rt-2"].functions[0].interface.as_str()).unwrap();
    let main = format!(
        "int main(void) {{ return strcmp(penstock_nics[0].interface_name, {}); }}\n",
        quoted.replace('?', "\\?")
    );
    compiles(of(".h"), &main);
    let table: serde_json::Value = serde_json::from_str(&of(".json").text).unwrap();
    assert_eq!(table["functions"][0]["interface"], model.guests["rt-2"].functions[0].interface.as_str());
    assert_eq!(table["machine"], model.machine);
}

#[test]
fn the_json_table_has_the_schema_that_is_documented() {
    let files = render(&published(), None).unwrap();
    let table = |guest: &str| -> serde_json::Value {
        let file =
            files.iter().find(|file| file.guest.as_str() == guest && file.path.ends_with(".json")).unwrap();
        serde_json::from_str(&file.text).unwrap()
    };
    let rt = table("rt-2");
    assert_eq!((&rt["version"], &rt["guest"]), (&1.into(), &"rt-2".into()));
    let last = serde_json::json!({
        "name": "NET1#5", "nic": "NET1", "vf": 5, "interface": "eth4", "mac": "02:00:00:00:01:05", "mtu": 9000,
        "vlan": 100, "loopback": null, "addresses": ["10.20.31.205/24", "fd00::5/64"], "dhcp": false,
        "routes": [
            {"to": "0.0.0.0/0", "via": "10.20.31.1", "metric": null},
            {"to": "198.51.100.0/24", "via": null, "metric": 50},
        ],
    });
    assert_eq!(rt["functions"][4], last);
    assert_eq!(rt["held_vfs"], serde_json::json!([]));
    let dns = serde_json::json!({"servers": ["10.20.30.1", "fd00::1"], "search": ["lab.example", "example"]});
    assert_eq!(rt["dns"], dns);
    let pf0 = table("pf0");
    assert_eq!(pf0["functions"][0]["mac"], "0c:c4:7a:9a:61:ea");
    let held =
        serde_json::json!({"name": "NET0#2", "mac": "02:00:00:00:00:02", "vlan": null, "owner": "rt-2"});
    assert_eq!(pf0["held_vfs"][2], held);
    let empty = table("empty");
    assert_eq!((&empty["functions"], &empty["dns"]), (&serde_json::json!([]), &serde_json::Value::Null));
}

#[test]
fn units_have_no_line_that_systemd_does_not_know() {
    let known = [
        "MACAddress",
        "Type",
        "Name",
        "MTUBytes",
        "Address",
        "Destination",
        "Gateway",
        "Metric",
        "DNS",
        "Domains",
        "DHCP",
        "UseDNS",
        "UseDomains",
    ];
    let mut model = published();
    model.guests["rt-2"].functions[3].dhcp = true;
    let files = render(&model, None).unwrap();
    let units: Vec<_> = files.iter().filter(|file| file.path.contains("/network/")).collect();
    assert_eq!(units.len(), 10, "two for each of five functions");
    for unit in units {
        for line in unit.text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let sections =
                ["[Match]", "[Link]", "[Network]", "[DHCPv4]", "[DHCPv6]", "[IPv6AcceptRA]", "[Route]"];
            let good = sections.contains(&line)
                || line.split_once('=').is_some_and(|(key, value)| known.contains(&key) && !value.is_empty());
            assert!(good, "{}: {line}", unit.path);
        }
        assert_eq!(unit.text.matches("[Match]").count(), 1);
        assert_eq!(unit.text.contains("\nDHCP=ipv4\n"), unit.path.ends_with("eth3.network"), "{}", unit.path);
        assert_eq!(
            unit.text.contains("\nDomains=lab.example example\n"),
            unit.path.ends_with("eth0.network"),
            "{}",
            unit.path
        );
        // Servers and domains of others would stand beside those of the model.
        for (section, is_there) in [
            ("DHCPv4", unit.path.ends_with("eth3.network")),
            ("DHCPv6", unit.path.ends_with(".network")),
            ("IPv6AcceptRA", unit.path.ends_with(".network")),
        ] {
            let refused = format!("\n\n[{section}]\nUseDNS=no\nUseDomains=no\n");
            assert_eq!(unit.text.contains(&refused), is_there, "{}: {}", unit.path, unit.text);
        }
    }
    model.guests["rt-2"].dns = None;
    assert!(
        render(&model, None).unwrap().iter().all(|file| !file.text.contains("UseDNS")),
        "nothing is said of them"
    );
}

#[test]
fn a_name_that_systemd_does_not_take_is_refused_at_its_function() {
    for name in ["12", "all", "eth\\"] {
        let mut model = published();
        model.guests["rt-2"].functions[1].interface = name.parse().unwrap();
        let Err(GenerateError::Model(found)) = render(&model, None) else { panic!("{name} was taken") };
        assert_eq!(found.0[0].path.to_string(), "guests.rt-2.functions.1", "{found}");
    }
}

#[test]
fn a_mac_that_is_not_known_is_an_error_that_says_what_to_do() {
    let text = |mac: &str| {
        format!(
            "nics: {{NET0: {{match: {{bdf: \"04:00.0\"}}}}}}\nguests: {{a: {{functions: [{{vf: NET0#0{mac}}}], generate: [{{template: json, to: a.json}}]}}}}\n"
        )
    };
    let given = parse(&text(", mac: \"02:00:00:00:00:00\""));
    assert!(
        render(&given, None).unwrap()[0].text.contains("02:00:00:00:00:00"),
        "all that is needed is known"
    );
    let source = Source::new("model.yaml", text(""));
    let Err(GenerateError::Unknown(found)) = render(&parse(&source.text), None) else {
        panic!("it was rendered")
    };
    let text = found.render(&source, false);
    for part in ["NET0#0", "model.yaml:1:", "--here", "--inventory FILE", "`match: {mac: ...}`"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A PF that a guest owns has no other address than its own.
    let mut model = published();
    model.nics["NET0"].matching = Default::default();
    let Err(GenerateError::Unknown(found)) = render(&model, None) else { panic!("it was rendered") };
    assert!(found.to_string().contains("the MAC address of NET0's PF is not known"), "{found}");
    let machine = machine();
    let at = |slot: &str| slot.parse::<Bdf>().unwrap();
    let nics = IndexMap::from([("NET0", "0000:04:00.0"), ("NET1", "0000:04:00.1")]);
    let nics = nics.into_iter().map(|(name, slot)| (name.parse().unwrap(), at(slot))).collect();
    let files = render(&model, Some(FoundMachine { inventory: &machine, nics: &nics })).unwrap();
    assert_eq!(files, render(&published(), None).unwrap(), "shipped templates say the same with a machine");
}

#[test]
fn wrong_templates_are_explained_at_their_line() {
    let cases = [
        ("one\ntwo {{ guest.nmae }}\n", "templates/own.txt.j2:2:8", "did you mean `name`?"),
        ("{% for f in functions %}\n{{ f.mca }}\n{% endfor %}\n", "own.txt.j2:2:4", "did you mean `mac`?"),
        ("{{ gest.name }}\n", "own.txt.j2:1:4", "did you mean `guest`?"),
        ("{{ zebra }}\n", "own.txt.j2:1:4", "docs/templates.md"),
        ("a\nb {{ guest.name | c_idnt }}\n", "own.txt.j2:2:", "did you mean `c_ident`?"),
        ("a\n{% if guest %}\n", "own.txt.j2:", "unexpected end of input"),
        ("{{ guest.name\n", "own.txt.j2:", "^"),
        ("{% include 'other.j2' %}\n", "own.txt.j2:1:", "a template is one file"),
        ("{{ functions | c_bytes }}\n", "own.txt.j2:1:", "^"),
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}\n",
            "own.txt.j2:1:",
            "a loop",
        ),
        ("{% for a in range(9999) %}{{ '0123456789' * 100 }}{% endfor %}\n", "own.txt.j2\n", "1024 KiB"),
        (
            "{% macro m(x) %}\n{{ x.nmae }}\n{% endmacro %}\n{{ m(guest) }}\n",
            "own.txt.j2:2:",
            "did you mean `name`?",
        ),
    ];
    for (text, place, part) in cases {
        let said = message(text);
        println!("{said}");
        assert!(said.contains(place) && said.contains(part), "{text}\n{said}");
        assert!(said.contains('^') || part.contains("KiB"), "{said}");
        assert!(!said.contains("(in "), "{said}");
    }
    assert!(own(&"x".repeat(MOST_BYTES)).is_ok());
    let deep = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    assert!(own(&format!("{{{{ {deep} }}}}")).is_err(), "depth has an end");
}

#[test]
fn every_documented_field_is_there_and_every_field_is_documented() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/templates.md")).unwrap();
    let documented: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(field, _)| field)
        .filter(|field| ["machine", "guest.", "functions", "nics"].iter().any(|root| field.starts_with(root)))
        .collect();
    for field in
        ["machine", "guest.name", "functions[].mac_bytes", "functions[].addresses[].ip", "nics[].vfs[].owner"]
    {
        assert!(documented.contains(&field), "{field}: {documented:?}");
    }
    let listing = concat!(
        "{% macro keys(value, path) %}{% if value is mapping %}{% for key, inner in value | items %}",
        "{{ keys(inner, path ~ '.' ~ key) }}{% endfor %}{% elif value is sequence and value and value[0] is mapping %}",
        "{{ keys(value[0], path ~ '[]') }}{% else %}{{ path }}\n{% endif %}{% endmacro %}",
        "machine\n{{ keys(guest, 'guest') }}{{ keys(functions, 'functions') }}{{ keys(nics, 'nics') }}",
    );
    let present = own(listing).unwrap();
    let fields: Vec<&str> = present.lines().collect();
    for field in &fields {
        assert!(documented.contains(field), "docs/templates.md says nothing of {field}");
    }
    for field in documented {
        let any = fields.iter().any(|known| known.starts_with(field));
        assert!(any, "docs/templates.md speaks of {field}, which is not there: {fields:?}");
    }
}

#[test]
fn two_files_in_one_place_are_refused() {
    let mut model = published();
    model.guests["pf0"].generate[0].to = "./generated//rt-2/nic_table.h".to_owned();
    let Err(GenerateError::Model(found)) = render(&model, None) else { panic!("it was rendered") };
    assert_eq!(found.0[0].path.to_string(), "guests.rt-2.generate.0.to");
    model.guests["pf0"].generate[0].to = "generated/rt-2".to_owned();
    let Err(GenerateError::Model(found)) = render(&model, None) else { panic!("it was rendered") };
    assert!(found.to_string().contains("below generated/rt-2, which is to be a file"), "{found}");
}

/// The machine of the published model.
fn machine() -> Inventory {
    let text = include_str!("../../plan/tests/golden/xeon-d/inventory.json");
    serde_json::from_str(text).unwrap()
}

#[test]
fn verdicts_tell_fresh_from_stale_and_missing() {
    let (model, machine) = (published(), machine());
    let at = |slot: &str| slot.parse::<Bdf>().unwrap();
    let nics = IndexMap::from([("NET0", "0000:04:00.0"), ("NET1", "0000:04:00.1")]);
    let nics = nics.into_iter().map(|(name, slot)| (name.parse().unwrap(), at(slot))).collect();
    let found = FoundMachine { inventory: &machine, nics: &nics };
    let files: BTreeMap<String, String> =
        render(&model, Some(found)).unwrap().into_iter().map(|file| (file.path, file.text)).collect();
    let paths = paths(&model);
    let all = verdicts(&model, found, |path| FoundFile::Text(files[path].clone())).unwrap();
    assert_eq!(all.len(), paths.len());
    assert!(all.iter().all(|verdict| verdict.outcome == Outcome::Pass && verdict.wanted == verdict.seen));
    let seen = |path: &str| match path {
        path if path == paths[0] => FoundFile::Text("by hand".to_owned()),
        path if path == paths[1] => FoundFile::Missing,
        path if path == paths[2] => FoundFile::Other("it is a directory".to_owned()),
        path if path == paths[3] => FoundFile::Unreadable("Permission denied".to_owned()),
        path => FoundFile::Text(files[path].clone()),
    };
    let all = verdicts(&model, found, seen).unwrap();
    assert!(all[..3].iter().all(|verdict| verdict.outcome == Outcome::Fail));
    assert!(all[0].seen.contains("stale") && all[1].seen.contains("missing"), "{all:?}");
    // What nobody has seen is no pass, and no failure of the file's either.
    assert_eq!(all[3].outcome, Outcome::Unknown);
    assert!(all[3].seen.contains("cannot be read: Permission denied"), "{all:?}");
    assert!(all[4..].iter().all(|verdict| verdict.outcome == Outcome::Pass));

    let mut blind = machine.clone();
    blind.pfs.iter_mut().for_each(|pf| pf.permanent_mac = None);
    let mut unmatched = model.clone();
    unmatched.nics["NET0"].matching = Default::default();
    let found = FoundMachine { inventory: &blind, nics: &nics };
    let all = verdicts(&unmatched, found, |path| FoundFile::Text(files[path].clone())).unwrap();
    assert_eq!(all.len(), paths.len());
    assert!(all.iter().all(|verdict| verdict.outcome == Outcome::Unknown && !verdict.holds()), "{all:?}");
}
