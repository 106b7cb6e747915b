#!/bin/sh
# Makes a board a node: runs from the disk of the cluster's files, which is mounted at /opt/kubernetes. $1: the node's name.
set -eu
own=/opt/kubernetes
mkdir -p /var/lib/kubelet /var/log/kubernetes /var/run/cdi /etc/cdi
chmod 700 /etc/kubernetes
hostname "$1"
echo "$1" >/etc/hostname
grep -q "[[:space:]]$1\$" /etc/hosts || echo "127.0.1.1 $1" >>/etc/hosts
# What tells nodes of one image apart.
[ -s /etc/machine-id ] || tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
# Libraries of programs on the disk that the board's image has not.
for library in $own/lib/*; do
    [ -e "/usr/lib/x86_64-linux-gnu/${library##*/}" ] || ln -s "$library" /usr/lib/x86_64-linux-gnu/
done
for program in kubectl ctr; do ln -sf $own/bin/$program /usr/local/bin/$program; done
# kubelet makes the pods' control groups below the root, with these controllers.
echo "+cpu +cpuset +memory +pids +io" >/sys/fs/cgroup/cgroup.subtree_control
modprobe -a bridge veth 2>/dev/null || true
$own/containerd start
