//! A Kubernetes cluster to try things on, without a network: etcd, the control plane and kwok run on this machine's loopback, kubelet and
//! containerd on boards.
