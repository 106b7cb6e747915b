#!/bin/busybox sh
# First process of a board that keeps its disk, or that has systemd. It lies over the image's own in a second archive.
bb=/bin/busybox
fail() {
    echo "penstock: $*"
    # Whoever waits for the board sees that on the console.
    while :; do $bb sleep 60; done
}
# The disk whose serial number is $1; the one with the root file system has none.
disk() {
    for block in /sys/block/vd*; do
        [ -e "$block/serial" ] && [ "$($bb cat "$block/serial")" = "$1" ] && echo "/dev/${block##*/}" && return
    done
}
$bb mkdir -p /sys
$bb mount -t devtmpfs dev /dev
$bb mount -t proc proc /proc
$bb mount -t sysfs sys /sys
for module in $($bb cat /modules.order); do
    $bb insmod "/modules/$module" || echo "penstock: could not load $module"
done
command=$($bb cat /proc/cmdline)
# Waits for a disk, for the kernel finds them one by one.
await() {
    tries=0
    while [ -z "$(disk "$1")" ] && [ $tries -lt 100 ]; do
        tries=$((tries + 1))
        $bb usleep 50000
    done
}
await ""
$bb mount -t squashfs -o ro "$(disk "")" /lower || fail "no root file system"
case " $command " in
*" penstock.disk=1 "*)
    $bb mount -t proc proc /lower/proc
    $bb chroot /lower /usr/sbin/modprobe ext4 || fail "no driver for the kept disk"
    $bb umount /lower/proc
    await penstock-kept
    $bb mount -t ext4 "$(disk penstock-kept)" /upper || fail "the kept disk cannot be mounted"
    ;;
*) $bb mount -t tmpfs -o mode=755 upper /upper ;;
esac
$bb mkdir -p /upper/data /upper/work
$bb mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work root /root
start=/usr/lib/penstock/start
case " $command " in
*" penstock.init=systemd "*)
    start=/usr/lib/systemd/systemd
    units=/root/etc/systemd/system
    $bb mkdir -p $units/multi-user.target.wants /root/etc/systemd/network
    $bb cp /systemd/start /root/usr/lib/penstock/start-systemd
    $bb cp /systemd/*.service $units/
    for unit in board board-vms board-settled; do
        $bb ln -sf ../$unit.service $units/multi-user.target.wants/$unit.service
    done
    $bb cp /systemd/management.link /root/etc/systemd/network/10-management.link
    $bb mkdir -p $units/systemd-udev-trigger.service.d
    $bb cp /systemd/coldplug.conf $units/systemd-udev-trigger.service.d/board.conf
    for unit in hostnamed journald logind machined udevd; do
        $bb mkdir -p $units/systemd-$unit.service.d
        $bb cp /systemd/plain.conf $units/systemd-$unit.service.d/board.conf
    done
    # A machine without a number is taken for one that was just installed, and all its units are set anew.
    [ -s /root/etc/machine-id ] || $bb tr -d - </proc/sys/kernel/random/uuid >/root/etc/machine-id
    # What a board does not need and waits for.
    for unit in $($bb cat /systemd/masked); do
        [ -e "$units/$unit" ] || $bb ln -sf /dev/null "$units/$unit"
    done
    ;;
esac
$bb umount /sys
$bb mount -o move /dev /root/dev
$bb umount /proc
exec $bb switch_root /root $start
