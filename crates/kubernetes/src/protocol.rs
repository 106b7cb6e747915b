//! What kubelet and a DRA driver say to each other, as kubelet 1.36 has it (k8s.io/kubelet v0.36.3, `pkg/apis`). The `.proto` files beside the
//! generated code are unchanged copies.
//!
//! To make the code anew: a program that calls `tonic_prost_build::configure().build_transport(false).out_dir("out").compile_protos(...)` of
//! tonic-prost-build 0.14 on the three files, with Debian's `protoc` (protobuf-compiler); then rename what is in `out`.
#![allow(missing_docs, clippy::all, clippy::missing_errors_doc, reason = "generated")]

/// Plugins tell kubelet of themselves: `pluginregistration/v1/api.proto`.
pub mod pluginregistration_v1;

/// Claims are prepared and unprepared: `dra/v1/api.proto`.
pub mod dra_v1;

/// Devices' health: `dra-health/v1alpha1/api.proto`.
pub mod dra_health_v1alpha1;
