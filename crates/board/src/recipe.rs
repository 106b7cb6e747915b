//! What goes into a board image, and the digest by which it is cached.

use penstock_host::cpio::Archive;
use penstock_model::digest::sha256;

/// Counts changes of how an image is made that are not in the texts below.
const VERSION: u32 = 6;

/// The Debian release.
pub const SUITE: &str = "trixie";

/// The packages; their dependencies come with them, what they recommend does not.
pub const PACKAGES: &[&str] = &[
    // The generic kernel: the cloud flavour has neither igb nor igbvf.
    "linux-image-amd64",
    // The same with PREEMPT_RT.
    "linux-image-rt-amd64",
    "busybox-static",
    "kmod",
    "xz-utils",
    "openssh-server",
    "iproute2",
    "ethtool",
    "iputils-ping",
    "pciutils",
    "lxc",
    // Loads the profiles that LXC generates for containers.
    "apparmor",
    "nvme-cli",
    "iperf3",
    "netperf",
    // Not in the builtin guest, which has no disk either: with Ceph's and Gluster's libraries it takes five times as much
    // as all the rest there.
    "fio",
    "rt-tests",
    "rtla",
    "qemu-system-x86",
    "libvirt-daemon",
    "libvirt-daemon-driver-qemu",
    "libvirt-clients",
    // Only for the builtin guest.
    "qemu-guest-agent",
    "nftables",
];

/// Which packages come from the backports, whose QEMU is new enough.
pub const PINS: &str = "Package: src:qemu src:seabios\nPin: release n=trixie-backports\nPin-Priority: 900\n";

/// What is left out of every package: what nobody reads on a board, and drivers of hardware that it has not.
pub const EXCLUDED: &[&str] = &[
    "/usr/share/man/*",
    "/usr/share/doc/*",
    "/usr/share/locale/*",
    "/usr/share/info/*",
    "/usr/share/bug/*",
    "/usr/share/lintian/*",
    "/usr/bin/qemu-system-i386",
    "/usr/bin/qemu-system-x86_64-*",
    "/usr/lib/modules/*/kernel/drivers/accel/*",
    "/usr/lib/modules/*/kernel/drivers/accessibility/*",
    "/usr/lib/modules/*/kernel/drivers/android/*",
    "/usr/lib/modules/*/kernel/drivers/ata/*",
    "/usr/lib/modules/*/kernel/drivers/block/drbd/*",
    "/usr/lib/modules/*/kernel/drivers/bluetooth/*",
    "/usr/lib/modules/*/kernel/drivers/bus/*",
    "/usr/lib/modules/*/kernel/drivers/char/ipmi/*",
    "/usr/lib/modules/*/kernel/drivers/char/tpm/*",
    "/usr/lib/modules/*/kernel/drivers/comedi/*",
    "/usr/lib/modules/*/kernel/drivers/dma/idxd/*",
    "/usr/lib/modules/*/kernel/drivers/edac/*",
    "/usr/lib/modules/*/kernel/drivers/firewire/*",
    "/usr/lib/modules/*/kernel/drivers/gpu/*",
    "/usr/lib/modules/*/kernel/drivers/hid/*",
    "/usr/lib/modules/*/kernel/drivers/hv/*",
    "/usr/lib/modules/*/kernel/drivers/hwmon/*",
    "/usr/lib/modules/*/kernel/drivers/i2c/busses/*",
    "/usr/lib/modules/*/kernel/drivers/iio/*",
    "/usr/lib/modules/*/kernel/drivers/infiniband/*",
    "/usr/lib/modules/*/kernel/drivers/input/*",
    "/usr/lib/modules/*/kernel/drivers/isdn/*",
    "/usr/lib/modules/*/kernel/drivers/md/*",
    "/usr/lib/modules/*/kernel/drivers/media/*",
    "/usr/lib/modules/*/kernel/drivers/message/*",
    "/usr/lib/modules/*/kernel/drivers/misc/*",
    "/usr/lib/modules/*/kernel/drivers/mmc/*",
    "/usr/lib/modules/*/kernel/drivers/mtd/*",
    "/usr/lib/modules/*/kernel/drivers/net/arcnet/*",
    "/usr/lib/modules/*/kernel/drivers/net/can/*",
    "/usr/lib/modules/*/kernel/drivers/net/ethernet/*",
    "/usr/lib/modules/*/kernel/drivers/net/fddi/*",
    "/usr/lib/modules/*/kernel/drivers/net/hamradio/*",
    "/usr/lib/modules/*/kernel/drivers/net/ieee802154/*",
    "/usr/lib/modules/*/kernel/drivers/net/ppp/*",
    "/usr/lib/modules/*/kernel/drivers/net/usb/*",
    "/usr/lib/modules/*/kernel/drivers/net/wan/*",
    "/usr/lib/modules/*/kernel/drivers/net/wireless/*",
    "/usr/lib/modules/*/kernel/drivers/net/wwan/*",
    "/usr/lib/modules/*/kernel/drivers/nvdimm/*",
    "/usr/lib/modules/*/kernel/drivers/nvme/target/*",
    "/usr/lib/modules/*/kernel/drivers/pcmcia/*",
    "/usr/lib/modules/*/kernel/drivers/platform/*",
    "/usr/lib/modules/*/kernel/drivers/power/*",
    "/usr/lib/modules/*/kernel/drivers/scsi/*",
    "/usr/lib/modules/*/kernel/drivers/staging/*",
    "/usr/lib/modules/*/kernel/drivers/target/*",
    "/usr/lib/modules/*/kernel/drivers/thunderbolt/*",
    "/usr/lib/modules/*/kernel/drivers/ufs/*",
    "/usr/lib/modules/*/kernel/drivers/usb/*",
    "/usr/lib/modules/*/kernel/drivers/video/*",
    "/usr/lib/modules/*/kernel/drivers/w1/*",
    "/usr/lib/modules/*/kernel/fs/afs/*",
    "/usr/lib/modules/*/kernel/fs/bcachefs/*",
    "/usr/lib/modules/*/kernel/fs/btrfs/*",
    "/usr/lib/modules/*/kernel/fs/cachefiles/*",
    "/usr/lib/modules/*/kernel/fs/ceph/*",
    "/usr/lib/modules/*/kernel/fs/dlm/*",
    "/usr/lib/modules/*/kernel/fs/f2fs/*",
    "/usr/lib/modules/*/kernel/fs/gfs2/*",
    "/usr/lib/modules/*/kernel/fs/jffs2/*",
    "/usr/lib/modules/*/kernel/fs/jfs/*",
    "/usr/lib/modules/*/kernel/fs/lockd/*",
    "/usr/lib/modules/*/kernel/fs/netfs/*",
    "/usr/lib/modules/*/kernel/fs/nfs/*",
    "/usr/lib/modules/*/kernel/fs/nfsd/*",
    "/usr/lib/modules/*/kernel/fs/nilfs2/*",
    "/usr/lib/modules/*/kernel/fs/ntfs3/*",
    "/usr/lib/modules/*/kernel/fs/ocfs2/*",
    "/usr/lib/modules/*/kernel/fs/orangefs/*",
    "/usr/lib/modules/*/kernel/fs/reiserfs/*",
    "/usr/lib/modules/*/kernel/fs/smb/*",
    "/usr/lib/modules/*/kernel/fs/ubifs/*",
    "/usr/lib/modules/*/kernel/fs/udf/*",
    "/usr/lib/modules/*/kernel/fs/xfs/*",
    "/usr/lib/modules/*/kernel/lib/test_*",
    "/usr/lib/modules/*/kernel/net/6lowpan/*",
    "/usr/lib/modules/*/kernel/net/ax25/*",
    "/usr/lib/modules/*/kernel/net/batman-adv/*",
    "/usr/lib/modules/*/kernel/net/bluetooth/*",
    "/usr/lib/modules/*/kernel/net/can/*",
    "/usr/lib/modules/*/kernel/net/ceph/*",
    "/usr/lib/modules/*/kernel/net/ieee802154/*",
    "/usr/lib/modules/*/kernel/net/mac80211/*",
    "/usr/lib/modules/*/kernel/net/mac802154/*",
    "/usr/lib/modules/*/kernel/net/nfc/*",
    "/usr/lib/modules/*/kernel/net/rds/*",
    "/usr/lib/modules/*/kernel/net/rxrpc/*",
    "/usr/lib/modules/*/kernel/net/sctp/*",
    "/usr/lib/modules/*/kernel/net/smc/*",
    "/usr/lib/modules/*/kernel/net/sunrpc/*",
    "/usr/lib/modules/*/kernel/net/tipc/*",
    "/usr/lib/modules/*/kernel/net/wireless/*",
    "/usr/lib/modules/*/kernel/sound/*",
];

/// What stays although it is under something left out: Intel's NICs, some of which a board has.
pub const INCLUDED: &[&str] = &["/usr/lib/modules/*/kernel/drivers/net/ethernet/intel/*"];

/// The first process of the first file system.
pub const INITRAMFS_INIT: &str = include_str!("../recipe/initramfs-init.sh");
/// What runs in the tree when its packages are installed.
pub const PREPARE: &str = include_str!("../recipe/prepare.sh");

/// What [`PREPARE`] is given, by file name: parts of the board's root file system and of the builtin guest.
pub const GIVEN: &[(&str, &str)] = &[
    // The first process of the root file system, and its part for boards with VMs.
    ("start", include_str!("../recipe/start.sh")),
    ("start-vms", include_str!("../recipe/start-vms.sh")),
    // What the process that reaps the others is told.
    ("inittab", include_str!("../recipe/inittab")),
    ("sshd_config", include_str!("../recipe/sshd_config")),
    // The builtin guest: how it is made, its first process, what comes after.
    ("guest-make", include_str!("../recipe/guest-make.sh")),
    ("guest-init", include_str!("../recipe/guest-init.sh")),
    ("guest-inittab", include_str!("../recipe/guest-inittab")),
    ("guest-late", include_str!("../recipe/guest-late.sh")),
];

/// By which name [`PREPARE`] is given [`guest_console`].
pub const GUEST_CONSOLE: &str = "guest-console";

/// The console of the builtin guest, as an archive that stands before the rest of its first file system. It is written here
/// since no program makes a device node in a user namespace, which is where an ordinary user's image is made.
pub fn guest_console() -> Vec<u8> {
    let mut archive = Archive::default();
    archive.directory("dev");
    archive.character_device("dev/console", 0o600, 5, 1);
    archive.finish()
}

/// The digest of the recipe: the name of an image in the cache. Which versions of the packages the archive had is not
/// part of it; they are in the image's `packages`.
pub fn digest() -> String {
    let lists = [PACKAGES.join(" "), EXCLUDED.join(" "), INCLUDED.join(" ")];
    let texts = [SUITE, PINS, INITRAMFS_INIT, PREPARE];
    let given = GIVEN.iter().flat_map(|(name, text)| [*name, *text]);
    let mut recipe = VERSION.to_le_bytes().to_vec();
    for text in lists.iter().map(String::as_str).chain(texts).chain(given) {
        recipe.extend((text.len() as u64).to_le_bytes());
        recipe.extend(text.as_bytes());
    }
    recipe.extend(guest_console());
    sha256(recipe)
}
