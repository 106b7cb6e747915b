#![allow(clippy::disallowed_methods)]

use std::{fs, path::Path};

use penstock_model::digest::sha256;
use std::io::Read as _;
use tar::{Builder, EntryType, Header};

use super::*;

/// A file of a tree that a test makes: its name, kind, mode, time, and contents or where it links to.
type Given<'a> = (&'a str, EntryType, u32, u64, &'a str);

const LATEST: u64 = 1_000;

fn archive(at: &Path, given: &[Given<'_>]) -> Files {
    read(at, given).unwrap()
}

fn read(at: &Path, given: &[Given<'_>]) -> Result<Files, Box<dyn Error>> {
    let mut builder = Builder::new(Vec::new());
    for (name, kind, mode, modified, contents) in given {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(*modified);
        if kind.is_symlink() || kind.is_hard_link() {
            header.set_size(0);
            builder.append_link(&mut header, name, contents).unwrap();
        } else {
            header.set_size(contents.len() as u64);
            header.set_path(name).unwrap();
            header.set_cksum();
            builder.append(&header, contents.as_bytes()).unwrap();
        }
    }
    fs::write(at, builder.into_inner().unwrap()).unwrap();
    Files::read(at)
}

/// What is in a layer, a line each: name, kind as a letter, mode, time, contents or target.
fn lines(layer: &ImageLayer) -> Vec<String> {
    let packed = fs::read(&layer.file).unwrap();
    assert_eq!((layer.size, &layer.digest), (packed.len() as u64, &sha256(&packed)));
    let mut archive = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut archive).unwrap();
    assert_eq!((layer.unpacked, &layer.diff), (archive.len() as u64, &sha256(&archive)));
    let mut archive = tar::Archive::new(&archive[..]);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut contents = String::new();
        entry.read_to_string(&mut contents).unwrap();
        let target = entry
            .link_name_bytes()
            .map(|target| String::from_utf8(target.to_vec()).unwrap())
            .unwrap_or_default();
        let (path, header) = (String::from_utf8(entry.path_bytes().to_vec()).unwrap(), entry.header());
        let kind = match header.entry_type() {
            EntryType::Directory => 'd',
            EntryType::Symlink => 'l',
            EntryType::Link => 'h',
            _ => 'f',
        };
        format!("{path} {kind} {:o} {} {contents}{target}", header.mode().unwrap(), header.mtime().unwrap())
    });
    entries.collect()
}

#[test]
fn a_layer_has_a_tree_in_order_and_nothing_of_the_build() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let long = format!("usr/{}/{}", "d".repeat(120), "f".repeat(120));
    let given = [
        ("./", EntryType::Directory, 0o755, 1, ""),
        ("./usr/", EntryType::Directory, 0o755, 1, ""),
        ("./usr/z", EntryType::Regular, 0o4755, 2_000, "z"),
        // The other name comes first in order.
        ("./usr/a", EntryType::Link, 0o4755, 2_000, "./usr/z"),
        ("./usr/empty", EntryType::Regular, 0o644, 5, ""),
        ("./usr/also-empty", EntryType::Regular, 0o644, 5, ""),
        ("./bin", EntryType::Symlink, 0o777, 3, "usr/bin"),
        ("./tmp/", EntryType::Directory, 0o1777, 4, ""),
        ("./dev/", EntryType::Directory, 0o755, 4, ""),
        ("./dev/null", EntryType::Char, 0o666, 4, ""),
        ("./run/lock/", EntryType::Directory, 0o1777, 4, ""),
    ];
    let layer = write_layer(&archive(&at("tree"), &given), None, LATEST, &at("layer")).unwrap();
    let wanted = [
        "bin l 777 3 usr/bin",
        "dev/ d 755 4 ",
        "tmp/ d 1777 4 ",
        "usr/ d 755 1 ",
        "usr/a f 755 1000 z",
        "usr/also-empty f 644 5 ",
        "usr/empty f 644 5 ",
        "usr/z h 755 1000 usr/a",
    ];
    assert_eq!(lines(&layer), wanted);

    // In another order the same; a name that no header has room for comes back.
    let mut builder = Builder::new(Vec::new());
    let mut header = penstock_oci::blank(1);
    builder.append_data(&mut header, &long, io::empty()).unwrap();
    builder.append_link(&mut header.clone(), "link", &long).unwrap();
    fs::write(at("long"), builder.into_inner().unwrap()).unwrap();
    let layer = write_layer(&Files::read(&at("long")).unwrap(), None, LATEST, &at("long-layer")).unwrap();
    assert!(lines(&layer).iter().any(|line| line.starts_with(&format!("{long} f "))), "{:?}", lines(&layer));
    let mut again = given;
    again[4..].reverse();
    let again = write_layer(&archive(&at("again"), &again), None, LATEST, &at("layer-again")).unwrap();
    assert_eq!(
        again.digest,
        write_layer(&archive(&at("tree"), &given), None, LATEST, &at("layer")).unwrap().digest
    );
}

#[test]
fn a_layer_above_another_has_what_is_new_and_notes_what_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let below = [
        ("etc/", EntryType::Directory, 0o755, 1, ""),
        ("etc/gone", EntryType::Regular, 0o644, 1, "x"),
        ("etc/kept", EntryType::Regular, 0o644, 1, "x"),
        ("etc/mode", EntryType::Regular, 0o644, 1, "x"),
        ("etc/text", EntryType::Regular, 0o644, 1, "x"),
        ("old/", EntryType::Directory, 0o755, 1, ""),
        ("old/file", EntryType::Regular, 0o644, 1, "x"),
    ];
    let above = [
        ("etc/", EntryType::Directory, 0o755, 9, ""),
        ("etc/kept", EntryType::Regular, 0o644, 9, "x"),
        ("etc/mode", EntryType::Regular, 0o755, 1, "x"),
        ("etc/new", EntryType::Regular, 0o644, 1, "n"),
        ("etc/text", EntryType::Regular, 0o644, 1, "y"),
    ];
    let (below, above) = (archive(&at("below"), &below), archive(&at("above"), &above));
    let layer = write_layer(&above, Some(&below), LATEST, &at("layer")).unwrap();
    let wanted = [
        ".wh.old f 0 1000 ",
        "etc/ d 755 9 ",
        "etc/.wh.gone f 0 1000 ",
        "etc/mode f 755 1 x",
        "etc/new f 644 1 n",
        "etc/text f 644 1 y",
    ];
    assert_eq!(lines(&layer), wanted);
}

#[test]
fn what_is_placed_in_a_tree_lies_in_directories_as_they_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let there = [
        ("home/", EntryType::Directory, 0o755, 1, ""),
        ("home/user/", EntryType::Directory, 0o775, 2, ""),
        ("home/user/own", EntryType::Regular, 0o644, 3, "x"),
    ];
    let placed = [
        ("home/user/", EntryType::Directory, 0o700, 9, ""),
        ("home/user/images/", EntryType::Directory, 0o755, 4, ""),
        ("home/user/images/one", EntryType::Regular, 0o644, 5, "y"),
    ];
    let placed = archive(&at("placed"), &placed).placed_in(&archive(&at("there"), &there));
    let layer = write_layer(&placed, None, LATEST, &at("layer")).unwrap();
    let wanted = [
        "home/ d 755 1 ",
        "home/user/ d 775 2 ",
        "home/user/images/ d 755 4 ",
        "home/user/images/one f 644 5 y",
    ];
    assert_eq!(lines(&layer), wanted);
}

#[test]
fn what_a_layer_cannot_keep_is_refused_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let given: [(Given<'_>, &str); 3] = [
        (("srv/disk", EntryType::Block, 0o600, 1, ""), "srv/disk: a layer cannot have"),
        (
            ("etc/.wh.passwd", EntryType::Regular, 0o644, 1, ""),
            "etc/.wh.passwd: a layer cannot have this name",
        ),
        (("etc/link", EntryType::Link, 0o644, 1, "etc/none"), "etc/none, which it links to, is no file"),
    ];
    for (given, why) in given {
        let error = read(&directory.path().join("tree"), &[given]).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let mut builder = Builder::new(Vec::new());
    builder.append_pax_extensions([("SCHILY.xattr.security.capability", b"x".as_slice())]).unwrap();
    let mut header = penstock_oci::blank(1);
    builder.append_data(&mut header, "usr/bin/ping", io::empty()).unwrap();
    fs::write(directory.path().join("tree"), builder.into_inner().unwrap()).unwrap();
    let error = Files::read(&directory.path().join("tree")).unwrap_err().to_string();
    assert!(error.contains("usr/bin/ping") && error.contains("security.capability"), "{error}");
}

#[test]
fn a_tag_has_no_character_that_registries_refuse() {
    assert_eq!(tag("0.1.0~20261126.200606.g3e8d8b20a1b2"), "0.1.0-20261126.200606.g3e8d8b20a1b2");
    assert_eq!(tag("1.0.0"), "1.0.0");
}
