//! What a node has beside the board's image, as a disk that it only reads: kubelet, containerd, crun, CNI plugins, the container image, and
//! the scripts that start them. Made once for each recipe and program, kept in the cache, shared by all nodes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_board::{Cache, Listener, Progress, cached, tree};
use penstock_host::{Command, files};
use penstock_model::digest::sha256;

use crate::{
    config,
    error::ClusterError,
    image,
    program::{self, ClusterProgram},
};

/// Counts changes of how the disk is made that are not in the texts below.
const VERSION: u32 = 1;

/// Debian packages of the board's release, of which a part is taken.
const PACKAGES: &[&str] = &["containerd", "crun", "containernetworking-plugins", "busybox-static"];

/// What is taken of them, into `/out` of the tree `$1`; of libraries those that crun wants, as the tree's own loader finds them.
const TAKE: &str = r#"set -e; cd "$1"; mkdir -p out/bin out/cni out/lib
cp usr/bin/containerd usr/bin/containerd-shim-runc-v2 usr/bin/ctr usr/bin/crun out/bin/
cp usr/lib/cni/bridge usr/lib/cni/host-local usr/lib/cni/loopback out/cni/
cp usr/bin/busybox out/busybox
chroot . /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 --list /usr/bin/crun | sed -n 's/.*=> \/\([^ ]*\) .*/\1/p' |
while read -r library; do case $library in */libc.so.*|*/libm.so.*|*/ld-linux*) ;; *) cp -L "$library" out/lib/ ;; esac; done"#;

/// The scripts on the disk.
const SCRIPTS: [(&str, u32, &str); 4] = [
    ("prepare", 0o755, include_str!("../node/prepare.sh")),
    ("service", 0o644, include_str!("../node/service.sh")),
    ("containerd", 0o755, include_str!("../node/containerd.sh")),
    ("kubelet", 0o755, include_str!("../node/kubelet.sh")),
];

/// How long packing the disk may take; it takes seconds.
const PACKING: Duration = Duration::from_secs(600);

/// Room for the tree and the disk.
const NEEDED: u64 = 900 << 20;

/// The disk's file within its directory.
const FILE: &str = "node.squashfs";

/// The disk in the cache, whole.
#[derive(Clone, Debug)]
pub struct NodeDisk {
    file: PathBuf,
}

impl NodeDisk {
    /// The disk of this version's recipe with this program: from the cache, or made now. Of two Penstocks that make one, the second waits for
    /// the first.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Board`] when the packages cannot be fetched or unpacked, [`ClusterError`] when there is no room, or the disk cannot be
    /// packed. Nothing is left under its name.
    pub fn ensure(
        cache: &Cache,
        program: &ClusterProgram,
        listener: Listener<'_>,
    ) -> Result<NodeDisk, ClusterError> {
        files::make_own_directory(cache.kubernetes())?;
        let directory = directory(cache);
        let look = || Ok(found(&directory));
        cached::once(&directory, listener, look, |part, listener| {
            make(part, program, listener)?;
            Ok(files::remove_tree(part.join("out"))?)
        })
    }

    /// Whether it is there, or can be made here. Takes a moment, so that it is said before other parts are made that take minutes.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Board`] when this user can unpack no packages.
    pub fn check(cache: &Cache) -> Result<(), ClusterError> {
        match found(&directory(cache)) {
            Some(_) => Ok(()),
            None => Ok(tree::check()?),
        }
    }

    /// The file that is the disk.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

/// Where the disk of this version's recipe is in the cache, or will be.
fn directory(cache: &Cache) -> PathBuf {
    cache.kubernetes().join(format!("node-{}", &digest()[..32]))
}

/// The disk in its directory, if it is there.
fn found(directory: &Path) -> Option<NodeDisk> {
    program::whole(directory, FILE).map(|file| NodeDisk { file })
}

fn digest() -> String {
    let mut recipe = VERSION.to_le_bytes().to_vec();
    let program = program::digest();
    let words = PACKAGES.iter().copied().chain([TAKE, image::NAME, &program, config::ON_NODE]);
    for text in words.chain(SCRIPTS.iter().flat_map(|(name, _, text)| [*name, *text])) {
        recipe.extend((text.len() as u64).to_le_bytes());
        recipe.extend(text.as_bytes());
    }
    recipe.extend(image::archive(b""));
    sha256(recipe)
}

fn make(part: &Path, program: &ClusterProgram, listener: Listener<'_>) -> Result<(), ClusterError> {
    let free = files::free_space(part)?;
    if free < NEEDED {
        return Err(ClusterError::NoSpace { directory: part.to_owned(), free, needed: NEEDED });
    }
    listener(Progress::Phase("Fetching containerd, crun and CNI plugins".to_owned()));
    tree::unpack(PACKAGES, TAKE, part)?;
    listener(Progress::Phase("Packing the disk of nodes".to_owned()));
    let tree = part.join("out");
    files::write_atomic(tree.join("image.tar"), image::archive(&files::read(tree.join("busybox"))?))?;
    files::remove_file(tree.join("busybox"))?;
    for (name, mode, text) in SCRIPTS {
        files::write_atomic_mode(tree.join(name), text, mode)?;
    }
    let all = tree.join("bin/penstock-cluster");
    files::copy(program.file(), &all)?;
    for name in ["kubelet", "kubectl"] {
        files::link("penstock-cluster", tree.join("bin").join(name))?;
    }
    // lz4 unpacks fastest under software emulation.
    Command::new("mksquashfs")
        .args(["out", FILE, "-all-root", "-noappend", "-quiet", "-no-progress", "-comp", "lz4"])
        .current_dir(part)
        .deadline(PACKING)
        .succeed()?;
    files::set_mode(part.join(FILE), 0o600)?;
    Ok(())
}
