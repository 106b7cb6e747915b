#!/bin/sh
# start, stop, restart or status of containerd on a node. Containers go on while it is stopped.
set -eu
name=containerd
PATH=/opt/kubernetes/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
run() { echo /opt/kubernetes/bin/containerd --config /etc/containerd/config.toml; }
ready() { ctr version >/dev/null 2>&1; }
. /opt/kubernetes/service
