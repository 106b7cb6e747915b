//! Any bytes as what programs answer that Penstock asks (tc, Incus' client, virsh, QEMU's monitor, an IPAM plugin), and as what the CNI plugin has
//! written down of a VF.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_cni::{config::Version, document::Attached, journal::Record};
use penstock_guests::{containers::rates, fuzzing};
use penstock_model::TxRate;

/// What is shown of an answer steers no terminal.
fn shown(text: &str) {
    assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
}

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if let Ok((seen, _)) = rates::root_rate(&text, TxRate(100)) {
        shown(&seen);
    }
    if let Ok(Err(seen)) = rates::redirect(&text) {
        shown(&seen);
    }
    // Nothing is made of nothing.
    assert!(fuzzing::incus(bytes) <= bytes.len());
    fuzzing::virsh(&text).iter().for_each(|line| shown(line));
    let ports = fuzzing::filters(bytes);
    assert!(ports.len() <= bytes.len() && ports.iter().all(|port| port == "port"));
    if let Ok(attached) = serde_json::from_slice::<Attached>(bytes) {
        assert_eq!(attached.kernel_routes().len(), attached.routes.len());
        assert!(attached.addresses_of(0).count() <= attached.ips.len());
        let version = Version::told_by(bytes);
        let document = attached.document(version);
        assert_eq!(document["cniVersion"], version.text());
        serde_json::from_value::<Attached>(document).expect("what is answered is read");
    }
    if let Ok(record) = serde_json::from_slice::<Record>(bytes) {
        let written = serde_json::to_vec(&record).expect("a record is written");
        assert_eq!(serde_json::from_slice::<Record>(&written).expect("what was written is read"), record);
    }
});
