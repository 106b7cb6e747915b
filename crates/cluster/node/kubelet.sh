#!/bin/sh
# start, stop, restart or status of kubelet on a node. Pods go on while it is stopped.
set -eu
name=kubelet
PATH=/opt/kubernetes/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
run() {
    echo /opt/kubernetes/bin/kubelet --config /etc/kubernetes/kubelet.yaml --kubeconfig /etc/kubernetes/kubelet.conf \
        --hostname-override "$(hostname)" --node-ip 10.0.2.15 --cert-dir /var/lib/kubelet/pki
}
ready() { alive; }
. /opt/kubernetes/service
