#!/bin/sh
# start, stop, restart or status of containerd on a node. Containers go on while it is stopped.
set -eu
name=containerd
socket=/run/containerd/containerd.sock
PATH=/opt/kubernetes/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
run() { rm -f "$socket"; echo /opt/kubernetes/bin/containerd --config /etc/containerd/config.toml; }
# Each start of `ctr` would cost an emulated processor a second.
ready() { [ -S "$socket" ]; }
. /opt/kubernetes/service
