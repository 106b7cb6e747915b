#!/bin/busybox sh
# What a board with systemd does beside its units: its keys, its management NIC, the drivers of its devices.
bb=/bin/busybox
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
say() { echo "penstock: $* ($($bb cut -d' ' -f1 /proc/uptime) s)" >/dev/console; }
say "systemd"
$bb hostname board
$bb mkdir -p /run/penstock /run/sshd
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
echo 0 >/proc/sys/net/ipv6/conf/default/accept_ra
modprobe -a qemu_fw_cfg virtio_net
given=/sys/firmware/qemu_fw_cfg/by_name/opt/penstock
( umask 077
  $bb cat $given/host-key/raw >/run/penstock/host-key
  umask 022
  $bb cat $given/client-key/raw >/run/penstock/authorized-keys )
# udev names it by its address, which takes a moment.
tries=0
until [ -e /sys/class/net/mgmt ] || [ $tries -gt 600 ]; do
    tries=$((tries + 1))
    $bb usleep 50000
done
$bb ip addr add 10.0.2.15/24 dev mgmt
$bb ip link set mgmt up
modprobe -a igb igbvf vfio-pci vfio_iommu_type1 veth overlay 8021q
[ -e $given/nvme ] && modprobe nvme
exit 0
