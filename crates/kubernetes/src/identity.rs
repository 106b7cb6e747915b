//! Names that the cluster, kubelet and the container runtime know this driver by.

/// The DRA driver's name, a DNS subdomain.
pub const DRIVER: &str = "sriov.penstock.dev";
/// The directory of the agent, for root alone (0700).
pub const STATE: &str = "/var/lib/penstock/kubernetes";
