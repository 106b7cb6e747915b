//! Describe a machine with SR-IOV in one file; rehearse, apply and prove it.
fn main() {}
