//! The disk that a domain boots from ("Domain XML format", "Hard drives, floppy disks, CDROMs").

use penstock_model::yaml::{FlowMapping, quoted, shown};

use super::{attribute, child};
use crate::import::foreign::{ForeignFields, ForeignNode};

/// What the one disk of a VM of a model is: the others, and those of which a model cannot say what they are, are told. `None`: nothing is left of them.
pub fn boot(disks: &[ForeignNode<'_>], kernel: bool) -> Option<FlowMapping> {
    let mut choice = if kernel { Vec::new() } else { candidates(disks) };
    choice.reverse();
    let mut found = None;
    let mut told = vec![false; disks.len()];
    while let (None, Some(position)) = (&found, choice.pop()) {
        told[position] = true;
        match of(&disks[position]) {
            Ok(boot) => found = Some(boot),
            Err(why) => disks[position].left_out(format!("`disk` is left out: {why}")),
        }
    }
    for (disk, _) in disks.iter().zip(told).filter(|(_, told)| !told) {
        disk.left_out("`disk` is left out: a VM of a model has a kernel, or the one disk that it boots from");
    }
    found
}

/// The positions of the disks that a VM boots from, the first one first: those with an order, or else the first one.
fn candidates(disks: &[ForeignNode<'_>]) -> Vec<usize> {
    let is_disk = |disk: &ForeignNode<'_>| attribute(disk, "device").is_none_or(|kind| kind == "disk");
    let all = || disks.iter().enumerate().filter(|(_, disk)| is_disk(disk));
    let order = |disk| attribute(&child(disk, "boot")?, "order")?.parse::<u32>().ok();
    let mut ordered: Vec<(u32, usize)> =
        all().filter_map(|(position, disk)| Some((order(disk)?, position))).collect();
    ordered.sort_unstable();
    match ordered.is_empty() {
        true => all().map(|(position, _)| position).take(1).collect(),
        false => ordered.into_iter().map(|(_, position)| position).collect(),
    }
}

/// What a disk is in a model, or why it is none there.
fn of(at: &ForeignNode<'_>) -> Result<FlowMapping, String> {
    let mut disk = at.fields();
    let read = read(&mut disk);
    if read.is_err() {
        disk.forget();
        return read;
    }
    ["type", "device"].iter().for_each(|key| disk.pass_over(key));
    // That of a VM that runs.
    disk.pass_over("alias");
    if disk.take("boot").is_some_and(|boot| attribute(&boot, "loadparm").is_some()) {
        at.left_out("`loadparm` of `boot` is left out: a model has no word for it");
    }
    if let Some(target) = disk.take("target") {
        let mut target = target.fields();
        target.pass_over("dev");
        if let Some(bus) = target.take("bus").filter(|bus| bus.text() != Some("virtio")) {
            bus.left_out(
                "`bus` is left out: the disk of a VM of a model is one of virtio, `/dev/vda` inside",
            );
        }
    }
    disk.left_out("address", "a VM of a model finds its disk at an address that Penstock chooses");
    if let Some(backing) = disk.take("backingStore") {
        backing.left_out("`backingStore` is left out: the image itself says what is behind it");
    }
    disk.pass_over("backingStore");
    read
}

/// What a model says of a disk. What it has no word for stays in `disk` where it changes little.
fn read(disk: &mut ForeignFields<'_>) -> Result<FlowMapping, String> {
    let has = |disk: &mut ForeignFields<'_>, key: &str| !disk.take_all(key).is_empty();
    if has(disk, "readonly") {
        return Err("it is only read (`readonly`), and a VM of a model writes to its disk".to_owned());
    }
    if has(disk, "transient") {
        let why =
            "what is written to it is lost when the VM ends (`transient`), and a VM of a model keeps it";
        return Err(why.to_owned());
    }
    let nothing = "a VM of a model boots a disk that is a file or a block device of the host";
    let source = disk.take("source").filter(|source| source.text().is_none()).ok_or(nothing)?;
    if has(disk, "encryption") || child(&source, "encryption").is_some() {
        return Err("it is encrypted, and a model has no word for its key".to_owned());
    }
    let Some(path) = attribute(&source, "file").or_else(|| attribute(&source, "dev")) else {
        return Err(nothing.to_owned());
    };
    let driver = disk.take("driver").filter(|driver| driver.text().is_none());
    let format = driver.as_ref().and_then(|driver| attribute(driver, "type")).unwrap_or("raw");
    if !matches!(format, "raw" | "qcow2") {
        return Err(format!("its format is {}, and a disk of a model is `raw` or `qcow2`", shown(format)));
    }
    let mut source = source.fields();
    // `index` is that of a VM that runs.
    ["file", "dev", "index"].iter().for_each(|key| source.pass_over(key));
    if let Some(mut driver) = driver.map(|driver| driver.fields()) {
        ["name", "type"].iter().for_each(|key| driver.pass_over(key));
        if let Some(cache) = driver.take("cache").filter(|cache| cache.text() != Some("none")) {
            cache.left_out("`cache` is left out: with a VM of a model it is `none`");
        }
    }
    let mut boot = FlowMapping::default();
    boot.put("disk", quoted(path));
    boot.put("format", format);
    Ok(boot)
}
