//! Software bills of materials in CycloneDX 1.6 (ECMA-424), JSON: what scanners of vulnerabilities and licences read.

use std::time::SystemTime;

use penstock_model::digest::sha256;
use serde_json::{Value, json};

use crate::{
    Program,
    dependencies::{Dependency, Id},
    licenses::Linked,
};

/// The bill of `program` for `target`, of its crates and of what else is linked into it. `commit` may be empty; `made`: when the commit was.
pub fn bill(
    program: Program,
    target: &str,
    crates: &[Dependency],
    linked: &[Linked],
    commit: &str,
    made: SystemTime,
) -> Value {
    let root = |dependency: &&Dependency| dependency.id.0 == program.crate_name();
    let version = crates.iter().find(root).map_or("", |root| root.id.1.as_str());
    let mut components: Vec<Value> =
        crates.iter().filter(|dependency| !root(dependency)).map(component).collect();
    components.extend(linked.iter().map(|linked| {
        json!({
            "type": "library", "bom-ref": linked.url(), "name": linked.name, "version": linked.version,
            "purl": linked.url(), "licenses": [{"expression": linked.license}],
        })
    }));
    let graph = crates.iter().map(|dependency| {
        let mut on: Vec<String> = dependency.uses.iter().map(url).collect();
        if root(&dependency) {
            on.extend(linked.iter().map(Linked::url));
        }
        json!({"ref": url(&dependency.id), "dependsOn": on})
    });
    let graph: Vec<Value> = graph.chain(linked.iter().map(|linked| json!({"ref": linked.url()}))).collect();
    let own = json!({
        "type": "application",
        "bom-ref": url(&(program.crate_name().to_owned(), version.to_owned())),
        "name": program.name(),
        "version": version,
        "licenses": [{"expression": env!("CARGO_PKG_LICENSE")}],
        "externalReferences": [{"type": "vcs", "url": env!("CARGO_PKG_REPOSITORY")}],
        "properties": [{"name": "penstock:commit", "value": commit}],
    });
    // The same commit has the same number, for the same target and what is linked into it besides.
    let besides: Vec<String> = linked.iter().map(Linked::url).collect();
    let hash = sha256(format!("{} {version} {commit} {target} {}", program.name(), besides.join(" ")));
    let number =
        format!("{}-{}-8{}-8{}-{}", &hash[..8], &hash[8..12], &hash[13..16], &hash[17..20], &hash[20..32]);
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": format!("urn:uuid:{number}"),
        "version": 1,
        "metadata": {
            "timestamp": humantime::format_rfc3339_seconds(made).to_string(),
            "component": own,
        },
        "components": components,
        "dependencies": graph,
    })
}

fn component(dependency: &Dependency) -> Value {
    let (name, version) = &dependency.id;
    let mut component = json!({
        "type": "library", "bom-ref": url(&dependency.id), "name": name, "version": version,
        "purl": url(&dependency.id),
    });
    if let Some(license) = &dependency.license {
        component["licenses"] = json!([{"expression": license}]);
    }
    if let Some(checksum) = &dependency.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = &dependency.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}

/// The package URL (purl) of a crate. No name or version of cargo's has a character that would have to be escaped but `+`.
fn url((name, version): &Id) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::PathBuf};

    use penstock_testkit::json;

    use super::*;

    #[test]
    fn a_bill_is_what_cyclonedx_says_and_one_that_is_not_is_told() {
        let crates: Vec<Dependency> = [("penstock-switch", None), ("adler2", Some("0".repeat(64)))]
            .map(|(name, checksum)| Dependency {
                id: (name.to_owned(), "2.0.1+a".to_owned()),
                license: Some("0BSD OR MIT".to_owned()),
                authors: Vec::new(),
                repository: Some("https://example.org/adler2".to_owned()),
                checksum,
                directory: PathBuf::new(),
                uses: BTreeSet::new(),
            })
            .into();
        let glibc = Linked {
            name: "glibc",
            version: "2.36-8".to_owned(),
            license: "LGPL-2.1-or-later",
            note: String::new(),
            from: "deb/debian",
        };
        let target = "x86_64-unknown-linux-gnu";
        let bill = bill(Program::Switch, target, &crates, &[glibc], "c0ffee", SystemTime::UNIX_EPOCH);
        json::bill_of_materials(&bill.to_string()).unwrap();
        for (pointer, wrong) in [
            ("/serialNumber", json!("urn:uuid:1")),
            ("/components/0/type", json!("crate")),
            ("/components/0/hashes/0/content", json!("0")),
            ("/components/0/licenses", json!([{"name": "MIT"}])),
            ("/metadata/timestamp", json!("today")),
        ] {
            let mut other = bill.clone();
            *other.pointer_mut(pointer).unwrap() = wrong;
            assert!(json::bill_of_materials(&other.to_string()).is_err(), "{pointer}");
        }
    }

    #[test]
    fn bills_of_other_contents_have_other_numbers() {
        let number = |target: &str, version: &str| {
            let glibc = Linked {
                name: "glibc",
                version: version.to_owned(),
                license: "LGPL-2.1-or-later",
                note: String::new(),
                from: "deb/debian",
            };
            let bill = bill(Program::Switch, target, &[], &[glibc], "c0ffee", SystemTime::UNIX_EPOCH);
            bill["serialNumber"].as_str().unwrap().to_owned()
        };
        let one = number("x86_64-unknown-linux-gnu", "2.36-8");
        assert_eq!(one, number("x86_64-unknown-linux-gnu", "2.36-8"));
        assert_ne!(one, number("aarch64-unknown-linux-gnu", "2.36-8"));
        assert_ne!(one, number("x86_64-unknown-linux-gnu", "2.36-9"));
    }
}
