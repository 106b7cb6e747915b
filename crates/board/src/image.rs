//! The board image: a Debian tree made once for each recipe, kept in the cache, shared by all boards. It can be [packed] into a file, and
//! unpacked from one that is [proven](proof) to be what its user means.

mod packed;
mod proof;
mod qemu_patch;
mod qemu_yield;

use std::{
    collections::BTreeSet,
    io::{self, Read},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use penstock_host::{Command, Output, ProcessError, cpio::Archive, debian, files, interrupt, process};
use penstock_model::{
    BoardKernel,
    digest::{hexadecimal, sha256},
};
use sha2::{Digest, Sha256};

use self::packed::Attentive;
pub use self::{
    packed::PackedError,
    proof::{Proof, ProofError},
};

use crate::{
    cache::Cache,
    cached, emulator,
    error::BoardError,
    progress::{Listener, Progress},
    recipe, rootless,
};

/// The list of an image's files with their SHA-256, written last.
const SUMS: &str = "SHA256SUMS";
/// Room for the tree, its archive and the image.
const NEEDED: u64 = 1500 << 20;
/// Room for an image alone.
const NEEDED_UNPACKED: u64 = 600 << 20;
/// Progress is told each time that so many bytes, as a power of two, were read.
const TOLD_EACH: u32 = 22;
/// How long the making of an image may take: a slow line downloads some 200 MB.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// An image in the cache, whole.
#[derive(Clone, Debug)]
pub struct Image {
    digest: String,
    directory: PathBuf,
    sums: String,
}

impl Image {
    /// The image of this version's recipe: from the cache, or made now. Of two Penstocks that make one, the second
    /// waits for the first. Nothing half-made is ever under the image's name.
    ///
    /// The mirror is `PENSTOCK_MIRROR`, else the one that this host's apt uses for Debian, else mmdebstrap's default.
    ///
    /// # Errors
    ///
    /// [`BoardError::Lacking`] or [`BoardError::Missing`] when this user cannot make one, [`BoardError::NoSpace`],
    /// [`BoardError::Download`] or [`BoardError::Build`] when making it fails, [`BoardError::Interrupted`]. Nothing is left
    /// under its name.
    pub fn ensure(cache: &Cache, listener: Listener<'_>) -> Result<Image, BoardError> {
        Image::kept(cache, listener, |work, listener| {
            rootless::check()?;
            make(work, listener)
        })
    }

    /// The same, unpacked from a [file](Image::pack) where it is not in the cache already, and whether it was. The file is the one of the
    /// proof in either case.
    ///
    /// # Errors
    ///
    /// [`BoardError::Unproven`] when the file is not the one of the proof, [`BoardError::Packed`] when it cannot be read or is no image of this
    /// version's recipe, [`BoardError::NoSpace`], [`BoardError::Interrupted`]. Nothing is left under its name that was not there.
    pub fn unpack(
        cache: &Cache,
        file: &Path,
        proof: &Proof,
        listener: Listener<'_>,
    ) -> Result<(Image, bool), BoardError> {
        let mut unpacked = false;
        let image = Image::kept(cache, &mut *listener, |work, listener| {
            unpacked = true;
            check_room(work, NEEDED_UNPACKED, "unpack the board image")?;
            listener(Progress::Phase("Unpacking the board image".to_owned()));
            proven(file, proof, listener, |from| packed::read(&recipe::digest(), from, work))
        })?;
        if !unpacked {
            listener(Progress::Phase(format!("Reading {}", file.display())));
            proven(file, proof, listener, |from| packed::read_through(&recipe::digest(), from))?;
        }
        Ok((image, unpacked))
    }

    /// Writes it to a file, for machines without a Debian mirror; the SHA-256 of the file. Of the same image it is always the same.
    ///
    /// # Errors
    ///
    /// [`BoardError::Damaged`] when the image is not what was made, [`BoardError::File`] when it cannot be read or the file not be written,
    /// [`BoardError::Interrupted`]; what was there is then as it was.
    pub fn pack(&self, file: &Path, listener: Listener<'_>) -> Result<String, BoardError> {
        self.verify()?;
        listener(Progress::Phase(format!("Packing the board image into {}", file.display())));
        let all: u64 = names(&self.sums).map(|name| files::length(self.file(name)).unwrap_or(0)).sum();
        let mut done = 0;
        let written = files::write_atomic_with(file, 0o644, |to| {
            let mut hashed = Hashed { to, digest: Sha256::new() };
            let told = |bytes| {
                done += bytes;
                listener(Progress::Fraction(done as f64 / all.max(1) as f64));
            };
            let packed = packed::write(&self.digest, &self.directory, &self.sums, &mut hashed, told);
            packed.map_err(io::Error::other)?;
            Ok(hexadecimal(hashed.digest.finalize()))
        });
        written.map_err(|error| match interrupt::pending() {
            true => BoardError::Interrupted { doing: "packing the board image" },
            false => error.into(),
        })
    }

    /// The image of this version's recipe: from the cache, or as `make` makes it in a directory that gets the image's name when it has.
    fn kept(
        cache: &Cache,
        listener: Listener<'_>,
        make: impl FnOnce(&Path, Listener<'_>) -> Result<(), BoardError>,
    ) -> Result<Image, BoardError> {
        let processor = std::env::consts::ARCH;
        if processor != "x86_64" {
            return Err(BoardError::OtherProcessor { processor });
        }
        let digest = recipe::digest();
        let directory = cache.images().join(&digest);
        let look = || Image::open(&digest, &directory);
        // One that is there is used even if nothing can be written there.
        if let Some(image) = look()? {
            return Ok(image);
        }
        files::create_dir_all(cache.images())?;
        cached::once(&directory, listener, look, |work, listener| {
            make(work, listener)?;
            listener(Progress::Fraction(1.0));
            Ok(())
        })
    }

    /// Where the kernel and the initramfs of the builtin guest are, or will be once the image of this version's recipe is
    /// made in `cache`.
    pub fn guest_directory(cache: &Cache) -> PathBuf {
        cache.images().join(recipe::digest()).join("guest")
    }

    /// The digest of the recipe.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The digest of every file in it, packages' versions and all.
    pub fn contents(&self) -> String {
        sha256(&self.sums)
    }

    /// Its packages with their versions, one a line.
    ///
    /// # Errors
    ///
    /// [`BoardError::File`] when the list cannot be read.
    pub fn packages(&self) -> Result<String, BoardError> {
        Ok(files::read_to_string(self.file("packages"))?)
    }

    /// Reads every file again and compares it with what was made; takes about a second.
    ///
    /// # Errors
    ///
    /// [`BoardError::Damaged`] with the files that differ, [`BoardError::Process`] when `sha256sum` cannot be run.
    pub fn verify(&self) -> Result<(), BoardError> {
        let output = Command::new("sha256sum")
            .args(["--check", "--quiet", SUMS])
            .current_dir(&self.directory)
            .run()?;
        if output.status.success() {
            return Ok(());
        }
        Err(BoardError::Damaged {
            directory: self.directory.clone(),
            what: output.text().trim().replace('\n', ", "),
        })
    }

    /// The kernel of the builtin guest; on a board the same file is `/usr/lib/penstock/guest/vmlinuz`.
    pub fn guest_kernel(&self) -> PathBuf {
        self.file("guest/vmlinuz")
    }

    /// The first file system of the builtin guest; on a board the same file is `/usr/lib/penstock/guest/initramfs`.
    /// A second archive may be put behind it: see `recipe/guest-init.sh`.
    pub fn guest_initramfs(&self) -> PathBuf {
        self.file("guest/initramfs")
    }

    pub(crate) fn kernel(&self, kernel: BoardKernel) -> PathBuf {
        self.file(match kernel {
            BoardKernel::Standard => "vmlinuz",
            BoardKernel::Realtime => "vmlinuz-realtime",
        })
    }

    pub(crate) fn initramfs(&self) -> PathBuf {
        self.file("initramfs.cpio")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.file("root.squashfs")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The image in `directory`, if there is one; an error when files of it are gone.
    fn open(digest: &str, directory: &Path) -> Result<Option<Image>, BoardError> {
        let sums = match files::read_to_string(directory.join(SUMS)) {
            Ok(sums) => sums,
            Err(error) if error.is_missing() && !files::exists(directory) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let is_there = |name: &str| files::length(directory.join(name)).is_ok_and(|length| length > 0);
        if let Some(name) = names(&sums).find(|name| !is_there(name)) {
            return Err(BoardError::Damaged {
                directory: directory.to_owned(),
                what: format!("{name} is gone or empty"),
            });
        }
        Ok(Some(Image { digest: digest.to_owned(), directory: directory.to_owned(), sums }))
    }
}

#[cfg(test)]
impl Image {
    /// One whose files nobody reads.
    pub(crate) fn called(directory: &str, sums: &str) -> Image {
        Image { digest: "d".to_owned(), directory: directory.into(), sums: sums.to_owned() }
    }
}

/// Reads a file to its end, and then holds it against its proof.
fn proven(
    file: &Path,
    proof: &Proof,
    listener: Listener<'_>,
    read: impl FnOnce(&mut Watched<'_, '_>) -> Result<(), PackedError>,
) -> Result<(), BoardError> {
    let unopened = |error| BoardError::Packed { file: file.to_owned(), source: PackedError::Unopened(error) };
    let from = Attentive(files::open(file).map_err(unopened)?);
    let length = files::length(file)?;
    let unproven = |source| BoardError::Unproven { file: file.to_owned(), source };
    let mut watched = Watched { from, read: 0, length, witness: proof.begin().map_err(unproven)?, listener };
    read(&mut watched).map_err(|error| match error {
        PackedError::Interrupted => BoardError::Interrupted { doing: "reading a board image" },
        PackedError::File(error) => error.into(),
        source => BoardError::Packed { file: file.to_owned(), source },
    })?;
    watched.witness.judge().map_err(unproven)
}

/// What is read of a file, as its proof sees it.
struct Watched<'a, 'l> {
    from: Attentive,
    read: u64,
    length: u64,
    witness: proof::Witness<'a>,
    listener: Listener<'l>,
}

impl Read for Watched<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(buffer)?;
        self.witness.look(&buffer[..length]);
        let before = self.read;
        self.read += length as u64;
        if before >> TOLD_EACH != self.read >> TOLD_EACH {
            (self.listener)(Progress::Fraction(self.read as f64 / self.length.max(1) as f64));
        }
        Ok(length)
    }
}

/// What is written, with its digest.
struct Hashed<'a> {
    to: &'a mut std::fs::File,
    digest: Sha256,
}

impl io::Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.to.write(bytes)?;
        self.digest.update(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The files of an image, by its list.
fn names(sums: &str) -> impl Iterator<Item = &str> {
    sums.lines().filter_map(|line| Some(line.split_once("  ")?.1))
}

/// Whether so many bytes are free in the file system of `directory`, which are needed to do what `purpose` says.
pub(crate) fn check_room(directory: &Path, needed: u64, purpose: &'static str) -> Result<(), BoardError> {
    let free = files::free_space(directory)?;
    if free >= needed {
        return Ok(());
    }
    Err(BoardError::NoSpace { directory: directory.to_owned(), free, needed, purpose })
}

fn make(work: &Path, listener: Listener<'_>) -> Result<(), BoardError> {
    for directory in [work, &std::env::temp_dir()] {
        check_room(directory, NEEDED, "make the board image")?;
    }
    let given = work.join("in");
    files::create_dir_all(&given)?;
    for (name, text) in recipe::GIVEN {
        files::write_atomic(given.join(name), text)?;
    }
    files::write_atomic(given.join(recipe::GUEST_CONSOLE), recipe::guest_console())?;
    files::write_atomic(work.join("prepare"), recipe::PREPARE)?;
    files::write_atomic(work.join("pins"), recipe::PINS)?;

    install(work, listener)?;
    listener(Progress::Phase("Packing the board's root file system".to_owned()));
    listener(Progress::Fraction(0.93));
    // lz4 unpacks fastest under software emulation, and packs in a second.
    let pack = "exec sqfstar -quiet -no-progress -comp lz4 root.squashfs <root.tar";
    run(Command::new("sh").args(["-c", pack]).current_dir(work))?;
    files::remove_file(work.join("root.tar"))?;

    let out = work.join("out");
    files::write_atomic(work.join("initramfs.cpio"), initramfs(&out)?)?;
    for name in ["vmlinuz", "vmlinuz-realtime", "guest", "qemu", "packages", "kernels"] {
        files::rename(out.join(name), work.join(name))?;
    }
    repair_qemu(&work.join("qemu").join(emulator::PROGRAM), listener)?;
    for done in [&out, &given, &work.join("prepare"), &work.join("pins"), &work.join("log")] {
        if done.is_dir() {
            files::remove_tree(done)?;
        } else {
            files::remove_file(done)?;
        }
    }
    listener(Progress::Fraction(0.98));
    let sum = format!(
        "find . -type f ! -name '{SUMS}*' -printf '%P\\n' | sort | xargs -d '\\n' sha256sum >{SUMS}.part"
    );
    run(Command::new("sh").args(["-c", &sum]).current_dir(work))?;
    files::rename(work.join(format!("{SUMS}.part")), work.join(SUMS))?;
    Ok(())
}

fn repair_qemu(program: &Path, listener: Listener<'_>) -> Result<(), BoardError> {
    let mut bytes = files::read(program)?;
    let unreadable = |error| BoardError::Emulator {
        found: format!("the image's {} cannot be read: {error}", emulator::PROGRAM),
    };
    let unknown = qemu_patch::repair(&mut bytes).map_err(unreadable)?;
    let yields = qemu_yield::yield_in_pause(&mut bytes).map_err(unreadable)?;
    files::write_atomic_mode(program, bytes, 0o755)?;
    if !unknown.is_empty() {
        listener(Progress::Note(format!(
            "this QEMU is not the one whose faults are repaired in a board image ({}): if it has them still, boards with busy VMs are reset \
             within minutes, or their VMs hang",
            unknown.join(", ")
        )));
    }
    if !yields {
        listener(Progress::Note(
            "this QEMU is not the one whose CPUs give way while they wait: boards with more CPUs than this machine has take longer".to_owned(),
        ));
    }
    Ok(())
}

fn run(command: Command) -> Result<Output, BoardError> {
    match command.deadline(TIMEOUT).succeed() {
        Err(ProcessError::Failed { errors, .. }) => Err(read_failure(&errors)),
        outcome => Ok(outcome?),
    }
}

/// What mmdebstrap says when it comes to a phase, what that means, and how much is done by then.
const PHASES: &[(&str, &str, f64)] = &[
    ("running apt-get update", "Fetching the package lists of Debian", 0.02),
    ("downloading packages", "Downloading packages", 0.08),
    ("extracting archives", "Unpacking the base system", 0.20),
    ("installing essential", "Installing the base system", 0.25),
    ("installing remaining", "Installing kernel, QEMU, LXC and tools", 0.38),
    ("chroot \"$1\" sh", "Unpacking drivers", 0.72),
    ("creating tarball", "Archiving the tree", 0.85),
];

fn install(work: &Path, listener: Listener<'_>) -> Result<(), BoardError> {
    let log = work.join("log");
    let mut child = debootstrap(work).start_logged(files::append(&log)?)?;
    let mut reached = 0;
    let status = loop {
        let ended = child.ended();
        let said = files::read(&log)?;
        let said = String::from_utf8_lossy(&said);
        while let Some((_, phase, done)) =
            (PHASES.iter().skip(reached)).find(|(sign, ..)| said.contains(sign))
        {
            reached += 1;
            listener(Progress::Phase((*phase).to_owned()));
            listener(Progress::Fraction(*done));
        }
        if let Some(status) = ended {
            break status;
        }
        if interrupt::pending() {
            // SIGTERM lets it unmount and remove its tree.
            child.end(rootless::FAREWELL);
            return Err(BoardError::Interrupted { doing: "making the board image" });
        }
        thread::sleep(Duration::from_millis(100));
    };
    if status.success() {
        return Ok(());
    }
    Err(read_failure(&String::from_utf8_lossy(&files::read(&log)?)))
}

fn debootstrap(work: &Path) -> Command {
    let file = |name: &str| quoted(&work.join(name));
    let root = process::is_root();
    let mut command = Command::new("mmdebstrap")
        // The kernel's own first file system is not used, and takes long to make.
        .env("INITRD", "No")
        .env("LC_ALL", "C.UTF-8")
        .arg(if root { "--mode=root" } else { "--mode=unshare" })
        .args(["--variant=minbase", "--architectures=amd64", "--format=tar"])
        .arg("--aptopt=Apt::Install-Recommends \"false\"")
        .arg("--aptopt=Acquire::Languages \"none\"")
        .arg("--aptopt=Acquire::Retries \"3\"")
        .args(recipe::EXCLUDED.iter().map(|path| format!("--dpkgopt=path-exclude={path}")))
        // Of several that fit, the last one counts.
        .args(recipe::INCLUDED.iter().map(|path| format!("--dpkgopt=path-include={path}")))
        .arg(format!("--include={}", recipe::PACKAGES.join(",")))
        .arg(format!("--setup-hook=upload {} /etc/apt/preferences.d/penstock", file("pins")))
        // The backports are on the mirror that the release itself comes from.
        .arg(format!(
            "--setup-hook=grep -h -m 1 '^deb .* {suite} ' \"$1\"/etc/apt/sources.list | \
             sed 's/ {suite} / {suite}-backports /' >\"$1\"/etc/apt/sources.list.d/backports.list",
            suite = recipe::SUITE
        ))
        .arg("--customize-hook=mkdir -p \"$1\"/penstock")
        .arg(format!("--customize-hook=copy-in {} /penstock", file("in")))
        .arg(format!("--customize-hook=upload {} /penstock/prepare", file("prepare")))
        .arg("--customize-hook=chroot \"$1\" sh /penstock/prepare")
        .arg(format!("--customize-hook=copy-out /penstock/out {}", quoted(work)))
        .arg("--customize-hook=rm -rf \"$1\"/penstock")
        .arg(recipe::SUITE)
        .arg(work.join("root.tar"));
    if let Some(mirror) = debian::mirror() {
        command = command.arg(mirror);
    }
    command
}

/// A path as mmdebstrap's hooks read words: as a shell does.
fn quoted(path: &Path) -> String {
    process::quoted(&path.to_string_lossy())
}

/// What a failed installation means.
pub(crate) fn read_failure(said: &str) -> BoardError {
    let telling = |signs: &[&str]| {
        said.lines()
            .find(|line| signs.iter().any(|sign| line.contains(sign)))
            .map(|line| line.trim().to_owned())
    };
    if let Some(line) = telling(&["No space left on device", "You don't have enough free space"]) {
        let directory = std::env::temp_dir();
        return BoardError::NoSpace {
            free: files::free_space(&directory).unwrap_or(0),
            directory,
            needed: NEEDED,
            purpose: if line.contains("archives") { "download packages" } else { "make the board image" },
        };
    }
    if let Some(why) = telling(&["NO_PUBKEY", "is not signed", "signatures were invalid", "Missing key"]) {
        return BoardError::Keyring { why };
    }
    let network = [
        "Temporary failure resolving",
        "Could not resolve",
        "Could not connect",
        "Connection failed",
        "Connection timed out",
        "Failed to fetch",
        "Unable to fetch",
        "Some index files failed to download",
    ];
    if let Some(why) = telling(&network) {
        return BoardError::Download { why };
    }
    let lines: Vec<&str> = said.trim_end().lines().collect();
    BoardError::Build { why: lines[lines.len().saturating_sub(12)..].join("\n") }
}

/// The kernel's first file system: busybox, what reaches the disk, and the script that hands over to it.
fn initramfs(out: &Path) -> Result<Vec<u8>, BoardError> {
    let mut archive = Archive::default();
    for directory in ["bin", "dev", "proc", "modules", "lower", "upper", "root"] {
        archive.directory(directory);
    }
    archive.character_device("dev/console", 0o600, 5, 1);
    archive.file("init", 0o755, recipe::INITRAMFS_INIT.as_bytes());
    archive.file("bin/busybox", 0o755, &files::read(out.join("busybox"))?);
    let order = files::read_to_string(out.join("modules.order"))?;
    archive.file("modules.order", 0o644, order.as_bytes());
    let releases: BTreeSet<&str> = order.lines().filter_map(|line| line.split('/').next()).collect();
    for release in releases {
        archive.directory(&format!("modules/{release}"));
    }
    for module in order.lines() {
        archive.file(&format!("modules/{module}"), 0o644, &files::read(out.join("modules").join(module))?);
    }
    Ok(archive.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_known_by_what_was_said() {
        let cases = [
            ("E: Could not resolve 'mirror'\n", "fetched"),
            ("W: GPG error: NO_PUBKEY 6ED0E7B82643E131\n", "signatures"),
            ("tar: write error: No space left on device\n", "free"),
            ("E: something else\n", "could not be made: E: something else"),
        ];
        for (said, expected) in cases {
            let message = read_failure(said).to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_file_is_held_against_its_proof_although_the_image_is_there_already() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path());
        let there = cache.images().join(recipe::digest());
        files::create_dir_all(&there).unwrap();
        files::write_atomic(there.join(SUMS), "00  vmlinuz\n").unwrap();
        files::write_atomic(there.join("vmlinuz"), "x").unwrap();
        let file = directory.path().join("image.tar.gz");
        let unpack = |digest: &str| {
            let proof = Proof::of_sha256(digest).unwrap();
            Image::unpack(&cache, &file, &proof, &mut |_| {}).map(|(_, unpacked)| unpacked)
        };
        let sums = format!("{}  vmlinuz\n", sha256("x"));
        let packed = |recipe: &str| {
            let mut bytes = Vec::new();
            packed::write(recipe, &there, &sums, &mut bytes, |_| {}).unwrap();
            bytes
        };
        let (ours, others) = (packed(&recipe::digest()), packed(&"0".repeat(64)));
        let digest = sha256(&ours);
        let missing = unpack(&digest).unwrap_err();
        assert!(matches!(missing, BoardError::Packed { source: PackedError::Unopened(_), .. }), "{missing}");
        files::write_atomic(&file, &others).unwrap();
        let another = unpack(&sha256(&others)).unwrap_err();
        assert!(
            matches!(another, BoardError::Packed { source: PackedError::OtherRecipe { .. }, .. }),
            "{another}"
        );
        files::write_atomic(&file, &ours).unwrap();
        let other = unpack(&"a".repeat(64)).unwrap_err();
        assert!(
            matches!(other, BoardError::Unproven { source: ProofError::OtherDigest { .. }, .. }),
            "{other}"
        );
        assert!(!unpack(&digest).unwrap(), "nothing was unpacked");
    }

    #[test]
    fn an_image_with_a_file_gone_is_damaged_and_one_without_a_directory_is_not_there() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Image::open("x", &directory.path().join("none")).unwrap().is_none());
        files::write_atomic(directory.path().join(SUMS), "00  vmlinuz\n").unwrap();
        let error = Image::open("x", directory.path()).unwrap_err();
        assert!(error.to_string().contains("vmlinuz is gone"), "{error}");
    }
}
