#!/bin/busybox sh
# First process of a board: finds the root file system and hands over to it. The root is read-only and shared by all
# boards; what a board writes goes to memory and is gone with it.
bb=/bin/busybox
$bb mount -t devtmpfs dev /dev
$bb mount -t proc proc /proc
# The same first file system serves both kernels, each of which takes its own modules.
release=$($bb uname -r)
for module in $($bb grep "^$release/" /modules.order); do
    $bb insmod "/modules/$module" || echo "penstock: could not load $module"
done
case "$($bb cat /proc/cmdline)" in
*penstock.probe=1*)
    # Only asked whether this accelerator runs this kernel at all.
    echo "penstock: probe ready"
    $bb reboot -f
    ;;
esac
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 100 ]; do
    tries=$((tries + 1))
    $bb usleep 50000
done
$bb mount -t squashfs -o ro /dev/vda /lower || echo "penstock: no root file system on /dev/vda"
$bb mount -t tmpfs -o mode=755 upper /upper
$bb mkdir /upper/data /upper/work
$bb mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work root /root
$bb mount -o move /dev /root/dev
$bb umount /proc
exec $bb switch_root /root /usr/lib/penstock/start
