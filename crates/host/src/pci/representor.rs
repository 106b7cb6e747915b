//! Representors, by the names of their ports (`net/devlink/port.c`, `__devlink_port_phys_port_name_get`).

use penstock_model::VfIndex;

/// Whether a port's name is that of a VF's or sub-function's representor: `pf0vf3`, `c1pf0vf3`, `pf0sf1`; an uplink is
/// called `p0`.
pub fn is_representor(port: &str) -> bool {
    let port = port.trim_start_matches(|c: char| c == 'c' || c.is_ascii_digit());
    port.starts_with("pf")
}

/// The index of the VF whose representor's port has this name: 3 of `pf0vf3`. Of a VF that another host has (`c1pf0vf3`) and of a sub-function
/// there is none.
pub(crate) fn represented_vf(port: &str) -> Option<VfIndex> {
    let (pf, vf) = port.strip_prefix("pf")?.split_once("vf")?;
    let number = |text: &str| text.parse::<u16>().ok().filter(|number| number.to_string() == text);
    number(pf)?;
    VfIndex::new(number(vf)?)
}
