//! The container image, read back by nothing that has written it, and run by podman as somebody without any privilege. A small one is made here;
//! `make packages-test` makes the one that is published.
#![allow(clippy::disallowed_methods)]

mod published;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use flate2::read::GzDecoder;
use penstock_host::{Command, process};
use penstock_model::digest::{hexadecimal, sha256};
use penstock_packages::container::{self, About, Files};
use penstock_testkit::{
    needs::{self, Lack},
    trials::{Outcome, Test, Trials},
    unpacked::{self, CONTAINERD, PODMAN},
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// Where Debian 12 and 13 have libraries.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
/// A rehearsal takes a minute, and longer on a busy machine.
const REHEARSAL: Duration = Duration::from_secs(1200);
/// What a user of the image rehearses first.
const SMALLEST: &str = "/usr/share/penstock/examples/smallest.yaml";

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.one_at_a_time();
    let everywhere: [(&str, Test); 1] = [("a_small_image_is_what_its_digests_say", small_image)];
    trials.add(&None, everywhere);
    let made = || match archive() {
        Ok(_) => None,
        Err(why) => Some(Lack::Machine(why)),
    };
    let missing = trials.lacking("container image", made);
    let judged: [(&str, Test); 1] =
        [("the_image_is_what_its_digests_say_and_has_nothing_of_its_builder", published_image)];
    trials.add(&missing, judged);
    let missing = trials.lacking("podman", || made().or_else(Podman::lacking));
    let run: [(&str, Test); 1] = [("podman_rehearses_in_the_image_without_privileges", rehearses)];
    trials.add(&missing, run);
    trials.run()
}

/// The image that `make packages-test` has made.
fn archive() -> Result<PathBuf, String> {
    let why = "`make packages-test` makes it first";
    let directory = published::directory().ok_or(why)?;
    let files = fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut images = files.flatten().map(|entry| entry.path());
    let image = images.find(|path| path.to_string_lossy().ends_with("-x86_64.oci.tar"));
    image.ok_or_else(|| format!("{why}: there is none in {}", directory.display()))
}

/// An image as it stands in its archive.
struct Image {
    /// The reference that it is given when it is loaded.
    name: String,
    manifest: Value,
    config: Value,
    /// Its layers as they are compressed, the lowest first.
    layers: Vec<Vec<u8>>,
}

impl Image {
    /// Reads an archive, and holds each digest and each size in it against what they are of.
    fn read(archive: &Path) -> Result<Image, String> {
        let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut names = Vec::new();
        let mut reader = tar::Archive::new(fs::File::open(archive).map_err(|error| error.to_string())?);
        for entry in reader.entries().map_err(|error| error.to_string())? {
            let mut entry = entry.map_err(|error| error.to_string())?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            names.push(name.clone());
            if entry.header().entry_type().is_file() {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
                files.insert(name, bytes);
            }
        }
        assert!(names.is_sorted(), "{names:?}");
        assert_eq!(names[..2], ["blobs/", "blobs/sha256/"]);
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).map_err(|error| error.to_string());
        assert_eq!(json(&files["oci-layout"])?["imageLayoutVersion"], "1.0.0");

        // Whoever is described is there, and is named nowhere else than by what it is.
        let mut known = BTreeSet::new();
        let mut blob = |descriptor: &Value, media: &str| -> Vec<u8> {
            assert_eq!(descriptor["mediaType"], media);
            let digest = descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
            let digest = digest.unwrap_or_else(|| panic!("no digest in {descriptor}"));
            let name = format!("blobs/sha256/{digest}");
            let bytes = files[&name].clone();
            assert_eq!(sha256(&bytes), digest);
            assert_eq!(descriptor["size"], bytes.len() as u64);
            known.insert(name);
            bytes
        };
        let index = json(&files["index.json"])?;
        assert_eq!(index["manifests"].as_array().map(Vec::len), Some(1));
        let only = &index["manifests"][0];
        let manifest = json(&blob(only, "application/vnd.oci.image.manifest.v1+json"))?;
        let config = json(&blob(&manifest["config"], "application/vnd.oci.image.config.v1+json"))?;
        let described = manifest["layers"].as_array().cloned().unwrap_or_default();
        let layers: Vec<Vec<u8>> = described
            .iter()
            .map(|layer| blob(layer, "application/vnd.oci.image.layer.v1.tar+gzip"))
            .collect();
        let all: BTreeSet<String> = files.keys().filter(|name| name.starts_with("blobs/")).cloned().collect();
        assert_eq!(known, all);

        // Docker's own list names the same.
        let docker = &json(&files["manifest.json"])?[0];
        let path = |descriptor: &Value| {
            descriptor["digest"].as_str().unwrap_or_default().replace("sha256:", "blobs/sha256/")
        };
        assert_eq!(docker["Config"], path(&manifest["config"]));
        let paths: Vec<String> = described.iter().map(path).collect();
        assert_eq!(docker["Layers"], serde_json::json!(paths));
        let name = only["annotations"]["io.containerd.image.name"].as_str().unwrap_or_default().to_owned();
        assert_eq!(docker["RepoTags"], serde_json::json!([name]));
        Ok(Image { name, manifest, config, layers })
    }

    /// Has `look` see the entries of each layer, by the layer's place; and holds its `diff_id` against what is unpacked.
    fn entries(&self, mut look: impl FnMut(usize, &Entry)) -> Result<(), String> {
        let diffs = self.config["rootfs"]["diff_ids"].as_array().cloned().unwrap_or_default();
        assert_eq!(diffs.len(), self.layers.len());
        for (at, (layer, diff)) in self.layers.iter().zip(diffs).enumerate() {
            let mut unpacked = Seen { from: GzDecoder::new(&layer[..]), digest: Sha256::new() };
            let mut archive = tar::Archive::new(&mut unpacked);
            let mut before = String::new();
            for entry in archive.entries().map_err(|error| error.to_string())? {
                let mut entry = entry.map_err(|error| error.to_string())?;
                let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
                let sorted = name.trim_end_matches('/').to_owned();
                assert!(before < sorted, "{before} stands before {sorted}");
                before = sorted;
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
                let header = entry.header();
                let numbers = || -> io::Result<(u32, u64, u64, u64)> {
                    Ok((header.mode()?, header.uid()?, header.gid()?, header.mtime()?))
                };
                let (mode, owner, group, modified) = numbers().map_err(|error| error.to_string())?;
                let kind = header.entry_type();
                look(at, &Entry { name, kind, mode, owner, group, modified, bytes });
            }
            io::copy(&mut unpacked, &mut io::sink()).map_err(|error| error.to_string())?;
            assert_eq!(diff, format!("sha256:{}", hexadecimal(unpacked.digest.finalize())));
        }
        Ok(())
    }
}

/// What is in a layer.
struct Entry {
    name: String,
    kind: tar::EntryType,
    mode: u32,
    owner: u64,
    group: u64,
    modified: u64,
    bytes: Vec<u8>,
}

/// What is read, with its digest.
struct Seen<R> {
    from: R,
    digest: Sha256,
}

impl<R: Read> Read for Seen<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(buffer)?;
        self.digest.update(&buffer[..length]);
        Ok(length)
    }
}

fn small_image() -> Outcome {
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name);
    let mut builder = tar::Builder::new(Vec::new());
    for (name, contents) in
        [("./usr/bin/sh", "shell"), ("./etc/passwd", "penstock:x:1000:1000::/home/penstock:/bin/sh\n")]
    {
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.len() as u64);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(9);
        builder.append_data(&mut header, name, contents.as_bytes())?;
    }
    fs::write(at("tree.tar"), builder.into_inner()?)?;
    let tree = Files::read(&at("tree.tar")).map_err(|error| error.to_string())?;
    let about = About { version: "0.1.0~1".to_owned(), revision: "c0ffee".repeat(6), date: 1_000_000_000 };
    let made = |name: &str| -> Result<Vec<u8>, String> {
        let layer =
            container::write_layer(&tree, None, 5, &at("layer.tar.gz")).map_err(|error| error.to_string())?;
        container::write(&about, &[(&layer, "a tree")], &at(name)).map_err(|error| error.to_string())?;
        fs::read(at(name)).map_err(|error| error.to_string())
    };
    assert_eq!(made("one.tar")?, made("other.tar")?);
    let image = Image::read(&at("one.tar"))?;
    assert_eq!(image.name, "localhost/penstock:0.1.0-1");
    starts_as_it_should(&image.config);
    assert_eq!(image.config["created"], "2001-09-09T01:46:40Z");
    assert_eq!(image.manifest["annotations"]["org.opencontainers.image.revision"], about.revision);
    let mut names = Vec::new();
    image.entries(|_, entry| names.push(entry.name.clone()))?;
    assert_eq!(names, ["etc/passwd", "usr/bin/sh"]);
    Ok(())
}

/// How a container of the image begins.
fn starts_as_it_should(config: &Value) {
    assert_eq!((&config["architecture"], &config["os"]), (&"amd64".into(), &"linux".into()));
    let start = &config["config"];
    assert_eq!(start["User"], "1000:1000");
    assert_eq!(start["Entrypoint"], serde_json::json!(["penstock"]));
    assert_eq!(start["WorkingDir"], "/work");
    assert!(
        start["Env"].as_array().is_some_and(|all| all.contains(&"HOME=/home/penstock".into())),
        "{start}"
    );
    for label in ["title", "version", "revision", "licenses", "source"] {
        let value = &start["Labels"][format!("org.opencontainers.image.{label}")];
        assert!(value.as_str().is_some_and(|value| !value.is_empty()), "{label}: {start}");
    }
}

/// The first layer that names an entry, with owner, group and mode there.
type Named = (usize, u64, u64, u32);

fn published_image() -> Outcome {
    let image = Image::read(&archive()?)?;
    starts_as_it_should(&image.config);
    assert_eq!(image.layers.len(), 3);
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let own = own.into_os_string().into_encoded_bytes();
    let mut wrong = Vec::new();
    let mut found: BTreeMap<String, (Named, usize)> = BTreeMap::new();
    let mut users = String::new();
    image.entries(|layer, entry| {
        let name = entry.name.trim_end_matches('/');
        let mut say = |why: &str| wrong.push(format!("layer {layer}, {name}: {why}"));
        if entry.kind.is_file() && entry.mode & 0o6000 != 0 {
            say("it has its user or group run as another");
        }
        if !entry.kind.is_symlink() && entry.mode & 0o002 != 0 {
            let shared = ["tmp", "var/tmp"].contains(&name) && entry.mode & 0o1000 != 0;
            if !shared {
                say("everybody may write to it");
            }
        }
        let built = ["etc/machine-id", "etc/resolv.conf", "etc/hostname", "etc/apt/sources.list", "prepare"];
        let below =
            ["dev/", "proc/", "run/", "sys/", "packages", "var/lib/apt/lists/", "var/cache/apt/archives/"];
        if built.contains(&name) || below.iter().any(|below| name.starts_with(below)) {
            say("it is the build's own");
        }
        let copies = name.ends_with("-old") || (name.starts_with("etc/") && name.ends_with('-'));
        if (name.starts_with("var/log/") && !entry.bytes.is_empty()) || copies {
            say("it is the build's own");
        }
        // The day of Debian 13 for what all versions have in common.
        if layer < 2 && entry.modified > 1_754_697_600 {
            say(&format!("it is from {}", entry.modified));
        }
        if contains(&entry.bytes, &own) {
            say("it names the directory that the image was built in");
        }
        if name == "etc/passwd" {
            users = String::from_utf8_lossy(&entry.bytes).into_owned();
        }
        let found_now = (layer, entry.owner, entry.group, entry.mode);
        // A layer that does not name a directory, but has something in it, gives it to root; one that names it again must not change it.
        if let Some((parent, _)) = name.rsplit_once('/')
            && found.get(parent).is_some_and(|(.., last)| *last != layer)
        {
            say("its directory is not in its layer");
        }
        match found.get_mut(name) {
            Some((before, last)) if entry.kind.is_dir() => {
                if (before.1, before.2, before.3) != (found_now.1, found_now.2, found_now.3) {
                    say(&format!("it was {before:?} and becomes {found_now:?}"));
                }
                *last = layer;
            }
            _ => drop(found.insert(name.to_owned(), (found_now, layer))),
        }
    })?;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(users.contains("\npenstock:x:1000:1000:"), "{users}");
    for directory in ["work", "home/penstock", "home/penstock/.cache/penstock/boards"] {
        assert_eq!(found.get(directory).map(|(first, _)| *first), Some((0, 1000, 0, 0o775)), "{directory}");
    }
    // Each layer has what it is for, so that an upgrade brings the last one alone.
    let layer_of =
        |what: &str| found.iter().find(|(name, _)| name.ends_with(what)).map(|(_, ((layer, ..), _))| *layer);
    assert_eq!(layer_of("usr/bin/ssh"), Some(0));
    assert_eq!(layer_of("/root.squashfs"), Some(1));
    for program in ["usr/bin/penstock", "usr/bin/penstock-switch", "examples/smallest.yaml"] {
        assert_eq!(layer_of(program), Some(2), "{program}");
    }
    let strange: Vec<&String> = found
        .iter()
        .filter(|(name, ((layer, ..), _))| {
            *layer == 2 && !name.contains("penstock") && !name.starts_with("var/lib/dpkg/")
        })
        .map(|(name, _)| name)
        .collect();
    // Where Debian has no directory yet.
    let may = [
        "usr/lib/cni",
        "usr/share/fish",
        "usr/share/fish/vendor_completions.d",
        "usr/share/zsh",
        "usr/share/zsh/vendor-completions",
    ];
    let strange: Vec<&&String> = strange.iter().filter(|name| !may.contains(&name.as_str())).collect();
    assert!(strange.is_empty(), "the last layer has {strange:?}");
    Ok(())
}

/// Whether `wanted` stands somewhere in `bytes`.
fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    let (first, mut rest) = (wanted[0], bytes);
    while let Some(at) = rest.iter().position(|byte| *byte == first) {
        if rest[at..].starts_with(wanted) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

/// Podman with images and containers of its own, gone with this value.
struct Podman {
    directory: TempDir,
    program: PathBuf,
    /// Where it comes from, unless it is installed.
    unpacked: Option<(PathBuf, PathBuf)>,
}

impl Podman {
    /// Why it cannot run here, if so.
    fn lacking() -> Option<Lack> {
        needs::root().or_else(|| match Podman::found() {
            Ok(podman) => needs::refused(podman.command(&["info"])),
            Err(lack) => Some(lack),
        })
    }

    fn found() -> Result<Podman, Lack> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        if let Some(program) = process::find("podman") {
            return Ok(Podman { directory, program, unpacked: None });
        }
        let missing = unpacked::lacking(PODMAN, &["usr/bin/podman", "usr/bin/conmon"])
            .or_else(|| unpacked::lacking(CONTAINERD, &["usr/sbin/runc"]));
        if let Some(lack) = missing {
            return Err(lack);
        }
        let podman = unpacked::tree(PODMAN);
        let containerd = unpacked::tree(CONTAINERD);
        let runc = containerd.join("usr/sbin/runc");
        // Without systemd it makes control groups itself. It raises limits where nobody says what they are, which not every root may.
        let text = format!(
            "[containers]\nlog_driver = \"k8s-file\"\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\n\
             [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\nruntime = \"runc\"\nconmon_path = [\"{}\"]\n\
             [engine.runtimes]\nrunc = [\"{}\"]\n",
            podman.join("usr/bin/conmon").display(),
            runc.display()
        );
        fs::write(directory.path().join("containers.conf"), text).map_err(|error| error.to_string())?;
        // It asks for one before it loads anything.
        let policy = "{\"default\": [{\"type\": \"insecureAcceptAnything\"}]}\n";
        fs::write(directory.path().join("policy.json"), policy).map_err(|error| error.to_string())?;
        Ok(Podman { program: podman.join("usr/bin/podman"), directory, unpacked: Some((podman, containerd)) })
    }

    fn command(&self, words: &[&str]) -> Command {
        let at = |name: &str| self.directory.path().join(name);
        let mut command = Command::new(&self.program);
        if let Some((podman, _)) = &self.unpacked {
            let libraries: Vec<String> =
                LIBRARIES.iter().map(|below| podman.join(below).display().to_string()).collect();
            command = command
                .env("LD_LIBRARY_PATH", libraries.join(":"))
                .env("CONTAINERS_CONF", at("containers.conf"))
                .env("CONTAINERS_REGISTRIES_CONF", "/dev/null");
        }
        command.arg("--root").arg(at("images")).arg("--runroot").arg(at("run")).args(words)
    }

    /// Loads an image; the name that it has then.
    fn load(&self, image: &Path) -> Result<String, String> {
        let mut words = self.command(&["load"]);
        if self.unpacked.is_some() {
            words = words.arg("--signature-policy").arg(self.directory.path().join("policy.json"));
        }
        let output = words.arg("--input").arg(image).deadline(REHEARSAL).succeed();
        let said = output.map_err(|error| error.to_string())?.text();
        let name = said.lines().find_map(|line| line.strip_prefix("Loaded image: "));
        Ok(name.ok_or_else(|| format!("no image in {said:?}"))?.trim().to_owned())
    }

    /// What a container says that has no network, no capability and no way to get one.
    fn run(&self, image: &str, options: &[&str], words: &[&str]) -> Result<String, String> {
        let closed = ["run", "--rm", "--network=none", "--cap-drop=all", "--security-opt=no-new-privileges"];
        let command = self.command(&closed).args(options).arg(image).args(words);
        let output = command.deadline(REHEARSAL).succeed().map_err(|error| error.to_string())?;
        Ok(output.text())
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // What it has mounted would outlive its directory.
        let _ = self.command(&["system", "reset", "--force"]).run();
    }
}

fn rehearses() -> Outcome {
    let podman = Podman::found().map_err(|lack| lack.to_string())?;
    let archive = archive()?;
    let name = podman.load(&archive)?;
    assert_eq!(name, Image::read(&archive)?.name);

    let version = podman.run(&name, &[], &["--version"])?;
    assert!(version.starts_with("penstock 0.1.0 ("), "{version}");
    let check = podman.run(&name, &[], &["check", SMALLEST])?;
    assert!(check.contains("a good model"), "{check}");
    // The entry point is for models; a pipeline wants a shell.
    let who = "id -u && grep CapEff /proc/self/status && command -v git && cat /var/lib/dpkg/status";
    let who = podman.run(&name, &["--entrypoint=sh"], &["-c", who])?;
    assert!(who.starts_with("1000\nCapEff:\t0000000000000000\n/usr/bin/git\n"), "{}", &who[..100]);
    assert!(who.contains("\nPackage: penstock-switch\nStatus: install ok installed\n"));

    let rehearsal = podman.run(&name, &[], &["rehearse", SMALLEST])?;
    assert!(rehearsal.contains("Holds: "), "{rehearsal}");
    // As a number that the image does not know, of the group root.
    let rehearsal = podman.run(&name, &["--user=4242:0"], &["rehearse", SMALLEST])?;
    assert!(rehearsal.contains("Holds: "), "{rehearsal}");
    // And as Docker starts it, which writes no name for that number: with this machine's.
    let users = tempfile::NamedTempFile::new()?;
    fs::write(users.path(), "somebody:x:4242:4242::/:/bin/sh\n")?;
    fs::set_permissions(users.path(), fs::Permissions::from_mode(0o644))?;
    let names = format!("--volume={}:/etc/passwd:ro", users.path().display());
    podman.run(&name, &["--user=4242:0", "--passwd=false", &names], &["rehearse", SMALLEST])?;
    // With a volume for saved boards, of which the second run resumes the first one's.
    let boards = "--volume=boards:/home/penstock/.cache/penstock/boards";
    for _ in 0..2 {
        podman.run(&name, &[boards], &["rehearse", SMALLEST])?;
    }
    let kept = podman.run(&name, &[boards, "--entrypoint=ls"], &["/home/penstock/.cache/penstock/boards"])?;
    assert_eq!(kept.lines().count(), 1, "one board was saved, and used again: {kept}");
    Ok(())
}
