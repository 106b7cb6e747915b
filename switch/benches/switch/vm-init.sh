#!/bin/busybox sh
# First process of a VM whose switch is measured, in place of a board's: an address on its interface, and then it does what it is
# told on its console, line by line, with the tools of the board's root file system.
bb=/bin/busybox
$bb mount -t devtmpfs dev /dev
$bb mount -t proc proc /proc
release=$($bb uname -r)
for module in $($bb grep "^$release/" /modules.order); do
    $bb insmod "/modules/$module"
done
$bb stty -echo </dev/console
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 100 ]; do
    tries=$((tries + 1))
    $bb usleep 50000
done
$bb mount -t squashfs -o ro /dev/vda /root
drivers=/root/usr/lib/modules/$release/kernel
for module in net/core/failover drivers/net/net_failover drivers/net/virtio_net; do
    $bb insmod "$drivers/$module.ko"
done
address=$($bb sed 's/.*penstock.address=\([^ ]*\).*/\1/' /proc/cmdline)
$bb mount -o move /dev /root/dev
$bb mount -t proc proc /root/proc
$bb mount -t sysfs sys /root/sys
$bb mount -t tmpfs tmp /root/tmp
$bb chroot /root ip link set lo up
$bb chroot /root ip address add "$address" dev eth0
$bb chroot /root ip link set eth0 up
while $bb printf 'vm> ' && read -r line; do
    $bb chroot /root sh -c "$line"
done
