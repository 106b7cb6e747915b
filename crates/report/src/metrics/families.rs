//! The metric families: names after the conventions of Prometheus and OpenMetrics 1.0 (base units, unit and type in the name).

/// What sort of family it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until what counts begins anew. Its name ends in `_total`.
    Counter,
    /// A value of the moment.
    Gauge,
    /// Always 1; what it tells is in its labels. Its name ends in `_info`.
    Info,
}

/// A metric family.
#[derive(Debug, PartialEq, Eq)]
pub struct MetricFamily {
    /// Its name, without unit and ending.
    pub name: &'static str,
    /// What sort it is.
    pub kind: Kind,
    /// Its unit, which its name has too.
    pub unit: Option<&'static str>,
    /// The labels that its series may have. One whose value is empty is left out.
    pub labels: &'static [&'static str],
    /// What it tells, in one sentence.
    pub help: &'static str,
}

impl MetricFamily {
    /// The name that its series have.
    pub fn series(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let ending = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        };
        format!("{}{unit}{ending}", self.name)
    }
}

/// What a function's series are known by.
const FUNCTION: &[&str] = &["bdf", "pf", "vf", "nic", "function"];
const PORT: &[&str] = &["guest", "nic", "port"];

macro_rules! families {
    ($($key:ident: $kind:ident $name:literal $(in $unit:literal)?, $labels:expr, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $key: MetricFamily = MetricFamily {
                name: concat!("penstock_", $name),
                kind: Kind::$kind,
                unit: families!(@unit $($unit)?),
                labels: $labels,
                help: $help,
            };
        )*
        /// All families, in the order in which they are written.
        pub static FAMILIES: &[MetricFamily] = &[$($key),*];
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}

families! {
    BUILD: Info "build", &["version"], "The Penstock that looked.";
    SCRAPE_DURATION: Gauge "scrape_duration" in "seconds", &[], "How long it took to look.";
    SCRAPE_ERRORS: Gauge "scrape_errors", &["what"], "How often something could not be read in this scrape, by what it was; its metrics are then missing.";
    SCAN_NOTES: Gauge "scan_notes", &[], "What the scan could not read or make sense of; penstock scan prints it.";

    FUNCTION_INFO: Info "function", &["bdf", "pf", "vf", "nic", "function", "interface", "driver", "guest", "iommu_group"], "A PF with SR-IOV, or a VF that exists.";
    FUNCTION_IN_IOMMU_GROUP: Gauge "function_in_iommu_group", FUNCTION, "Whether the function is in an IOMMU group, without which no VM can own it.";
    PF_VFS: Gauge "pf_vfs", FUNCTION, "VFs that exist.";
    PF_VFS_MAX: Gauge "pf_vfs_max", FUNCTION, "VFs that the PF's driver allows.";
    PF_COUNTS_VFS: Gauge "pf_counts_vfs", FUNCTION, "Whether the PF's driver was seen to count for its VFs; 0 while all that it tells is zero, which drivers that count nothing tell too.";

    INTERFACE_UP: Gauge "interface_up", FUNCTION, "Whether the interface is administratively up.";
    INTERFACE_CARRIER: Gauge "interface_carrier", FUNCTION, "Whether the interface has a carrier; missing while it is down.";
    INTERFACE_SPEED: Gauge "interface_speed" in "bytes_per_second", FUNCTION, "Speed of the link; missing where the driver knows none.";
    INTERFACE_RX_BYTES: Counter "interface_receive" in "bytes", FUNCTION, "Bytes that the interface received.";
    INTERFACE_TX_BYTES: Counter "interface_transmit" in "bytes", FUNCTION, "Bytes that the interface sent.";
    INTERFACE_RX_PACKETS: Counter "interface_receive" in "packets", FUNCTION, "Packets that the interface received.";
    INTERFACE_TX_PACKETS: Counter "interface_transmit" in "packets", FUNCTION, "Packets that the interface sent.";
    INTERFACE_RX_MULTICAST: Counter "interface_receive_multicast" in "packets", FUNCTION, "Multicast packets that the interface received.";
    INTERFACE_RX_DROPPED: Counter "interface_receive_dropped" in "packets", FUNCTION, "Packets that the interface received and for which there was no room or no taker.";
    INTERFACE_TX_DROPPED: Counter "interface_transmit_dropped" in "packets", FUNCTION, "Packets that the interface did not send for want of room.";
    INTERFACE_RX_ERRORS: Counter "interface_receive_errors", FUNCTION, "Bad packets that the interface received.";
    INTERFACE_TX_ERRORS: Counter "interface_transmit_errors", FUNCTION, "Packets that the interface could not send because of a fault.";

    VF_RX_BYTES: Counter "vf_receive" in "bytes", FUNCTION, "Bytes that came to the VF, as its PF's driver counts them.";
    VF_TX_BYTES: Counter "vf_transmit" in "bytes", FUNCTION, "Bytes that the VF sent, as its PF's driver counts them.";
    VF_RX_PACKETS: Counter "vf_receive" in "packets", FUNCTION, "Packets that came to the VF, as its PF's driver counts them.";
    VF_TX_PACKETS: Counter "vf_transmit" in "packets", FUNCTION, "Packets that the VF sent, as its PF's driver counts them.";
    VF_RX_BROADCAST: Counter "vf_receive_broadcast" in "packets", FUNCTION, "Broadcast packets that came to the VF.";
    VF_RX_MULTICAST: Counter "vf_receive_multicast" in "packets", FUNCTION, "Multicast packets that came to the VF.";
    VF_RX_DROPPED: Counter "vf_receive_dropped" in "packets", FUNCTION, "Packets for the VF that were dropped.";
    VF_TX_DROPPED: Counter "vf_transmit_dropped" in "packets", FUNCTION, "Packets of the VF that were dropped.";

    GUEST_INFO: Info "guest", &["guest", "kind"], "A guest that is defined on this machine, or about to be.";
    GUEST_STATE: Gauge "guest_state", &["guest", "state"], "1 for the state that the guest is in, 0 for the others.";
    GUEST_START: Gauge "guest_start_time" in "seconds", &["guest"], "When the guest was started, since 1970; missing while it is not there.";

    PORT_CONNECTED: Gauge "switch_port_connected", PORT, "Whether what the port leads to is there: QEMU, or the uplink's interface.";
    PORT_UP: Gauge "switch_port_up", PORT, "Whether the port's link is up.";
    PORT_RX_BYTES: Counter "switch_port_receive" in "bytes", PORT, "Bytes that came to the guest through the port.";
    PORT_TX_BYTES: Counter "switch_port_transmit" in "bytes", PORT, "Bytes that the guest sent through the port.";
    PORT_RX_PACKETS: Counter "switch_port_receive" in "packets", PORT, "Frames that came to the guest through the port.";
    PORT_TX_PACKETS: Counter "switch_port_transmit" in "packets", PORT, "Frames that the guest sent through the port.";
    PORT_RX_DROPPED: Counter "switch_port_receive_dropped" in "packets", &["guest", "nic", "port", "reason"], "Frames for the guest that the switch dropped.";
    PORT_TX_DROPPED: Counter "switch_port_transmit_dropped" in "packets", &["guest", "nic", "port", "reason"], "Frames of the guest that the switch dropped.";

    RUNS: Gauge "runs", &["state"], "Runs that somebody should look at: open ones wait to be confirmed, half_way ones left the machine between two states, lapsed ones were not confirmed before a reset, damaged ones cannot be read in full.";
    RUN_CONFIRM_UNTIL: Gauge "run_confirm_deadline_timestamp" in "seconds", &[], "When the first open run is taken back unless it is confirmed, since 1970; missing while none waits.";
    LAST_RUN_INFO: Info "last_run", &["run", "purpose", "model", "outcome"], "The run that was begun last.";
    LAST_RUN_SUCCESS: Gauge "last_run_success", &[], "Whether the last run did what it was to do; missing while it goes on.";
    LAST_RUN_START: Gauge "last_run_start_time" in "seconds", &[], "When the last run began, since 1970.";
    LAST_RUN_END: Gauge "last_run_end_time" in "seconds", &[], "When the last run ended, since 1970; missing while it goes on, and of one that was cut off.";
    RUN_IN_PROGRESS: Gauge "run_in_progress", &[], "Whether something is being carried out.";
    RUN_STEPS: Gauge "run_steps", &[], "Steps of what is being carried out.";
    RUN_STEPS_DONE: Gauge "run_steps_done", &[], "Those of them that have come out one way or the other.";

    VERIFY_HOLDS: Gauge "verify_holds", &[], "Whether every verdict on the model holds.";
    VERIFY_TIME: Gauge "verify_timestamp" in "seconds", &[], "When the model was compared with the machine, since 1970.";
    VERDICTS: Gauge "verdicts", &["attribute", "outcome"], "Verdicts, by attribute and outcome.";
    DRIFT: Gauge "drift", &["subject", "attribute"], "1 for what is not as the model has it.";
    DRIFTED: Gauge "drifted_attributes", &[], "How many attributes are not as the model has them, also those that penstock_drift has no room for.";
}

/// The families as a table of Markdown, for docs/metrics.md.
pub fn table() -> String {
    let mut table = "| metric | type | labels | it tells |\n|---|---|---|---|\n".to_owned();
    for family in FAMILIES {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
        };
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        table += &format!("| `{}` | {kind} | {} | {} |\n", family.series(), labels.join(" "), family.help);
    }
    table
}
