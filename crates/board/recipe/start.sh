#!/bin/busybox sh
# The board's own small init: no systemd and no udev, so that a board is up in seconds and a network interface keeps
# the kernel's own name (eth0, eth1...) but for the management NIC, which is called mgmt.
bb=/bin/busybox
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
say() { echo "penstock: $* ($($bb cut -d' ' -f1 /proc/uptime) s)" >/dev/console; }

$bb mount -t proc -o nosuid,nodev,noexec proc /proc
$bb mount -t sysfs -o nosuid,nodev,noexec sys /sys
$bb mkdir -p /dev/pts /dev/shm
$bb mount -t devpts -o nosuid,noexec,gid=5,mode=620,ptmxmode=666 devpts /dev/pts
$bb mount -t tmpfs -o nosuid,nodev shm /dev/shm
$bb mount -t tmpfs -o nosuid,nodev,mode=755 run /run
$bb mount -t tmpfs -o nosuid,nodev,mode=1777 tmp /tmp
$bb mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 /sys/fs/cgroup
$bb mount -t debugfs -o nosuid,nodev,noexec debugfs /sys/kernel/debug
$bb mount -t securityfs -o nosuid,nodev,noexec securityfs /sys/kernel/security
$bb mount -t tracefs -o nosuid,nodev,noexec tracefs /sys/kernel/tracing
$bb ln -sf /proc/self/fd /dev/fd
say "user space"

$bb hostname board
$bb mkdir -p /run/penstock /run/sshd /run/lock
# Without this every interface that comes up starts to ask for duplicates and routers, and a fresh address is not
# usable for a second or two.
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
echo 0 >/proc/sys/net/ipv6/conf/default/accept_ra
$bb ip link set lo up

modprobe -a qemu_fw_cfg virtio_net
# This board's keys. They come from outside, so that the shared image holds no secret.
given=/sys/firmware/qemu_fw_cfg/by_name/opt/penstock
( umask 077
  $bb cat $given/host-key/raw >/run/penstock/host-key
  # Readable for all: sshd reads it as the account that is entered.
  umask 022
  $bb cat $given/client-key/raw >/run/penstock/authorized-keys )
for device in /sys/class/net/*; do
    if [ "$($bb cat "$device/address")" = 52:54:00:70:73:00 ]; then
        $bb ip link set "${device##*/}" name mgmt
        $bb ip addr add 10.0.2.15/24 dev mgmt
        $bb ip link set mgmt up
    fi
done
/usr/sbin/sshd -f /usr/lib/penstock/sshd_config -E /run/penstock/sshd.log
say "sshd started"

# VMs, on boards that have any. libvirt is asked what its QEMU can do before it is needed, which takes it long: beside
# all the rest, and before the board is ready, so that a saved board knows it.
[ -e $given/vms ] && ( . /usr/lib/penstock/start-vms ) &
vms=$!

modprobe -a igb igbvf vfio-pci vfio_iommu_type1 veth overlay 8021q
[ -e $given/nvme ] && modprobe nvme
say "drivers loaded"
wait $vms
# By two ways: the kernel's messages may come in the middle of what a program says on the console, but not of one another;
# and the console shows of them only what the log level lets through.
echo "penstock: board ready" >/dev/console
echo "<2>penstock: board ready" >/dev/kmsg
exec $bb init
