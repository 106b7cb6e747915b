#!/bin/sh
# Runs inside the new tree after prepare.sh: makes the kernels and the initramfs of the builtin guest, a small Linux for
# VMs, from what the tree has. $1 is where they are also put for the host.
set -eu
out=$1
root=/penstock/guest
mkdir -p $root/bin $root/sbin $root/etc $root/dev $root/proc $root/sys $root/run $root/tmp $root/root \
    $root/usr/bin $root/usr/sbin $root/usr/lib/penstock $root/penstock/bin $root/lib64 $root/lib/modules
chmod 1777 $root/tmp

# busybox, with a name for each of its programs.
cp /bin/busybox $root/bin/busybox
for applet in $(busybox --list); do
    [ "$applet" = busybox ] || ln -s busybox $root/bin/"$applet"
done
for applet in init reboot poweroff halt modprobe mdev; do ln -s ../bin/busybox $root/sbin/$applet; done

# Drivers of VFs and of NVMe, what the power button needs, and networks of containers; with what they need, in the same places.
modules_of() {
    release=$1
    for name in igb igbvf ixgbevf iavf nvme virtio_net virtio_rng virtio_blk button evdev af_packet 8021q \
        veth bridge macvlan ipvlan nf_tables nf_conntrack nft_ct nft_chain_nat nft_masq; do
        modprobe --show-depends -S "$release" $name 2>/dev/null | sed -n 's/^insmod \([^ ]*\).*/\1/p'
    done | sort -u | while read -r file; do
        mkdir -p "$root${file%/*}"
        cp "$file" "$root$file"
    done
    kept=$root/lib/modules/$release modules=/usr/lib/modules/$release
    cp "$modules/modules.order" "$modules/modules.builtin" "$kept"/
    depmod -b $root "$release"
    (cd "$kept" && rm -f ./*.bin modules.order modules.builtin* modules.devname modules.softdep modules.weakdep modules.symbols)
}

# Programs with the libraries that they load.
for program in /usr/sbin/qemu-ga /usr/bin/netserver /usr/bin/netperf /usr/bin/iperf3 /usr/bin/cyclictest \
    /usr/bin/oslat /usr/bin/hackbench /usr/bin/chrt /usr/bin/taskset /usr/bin/ip /usr/sbin/nft; do
    cp $program $root$program
    ldd $program | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*ld-linux[^ ]*\).*/\1/p' |
        while read -r library; do
            # Without hwcap directories: the plain name is what every processor can run.
            mkdir -p $root"${library%/*}"
            [ -e $root"$library" ] || cp -L "$library" $root"$library"
        done
done

# iproute2's, which can do more than busybox'.
ln -sf ../usr/bin/ip $root/bin/ip

cp /penstock/in/guest-init $root/init
cp /penstock/in/guest-inittab $root/etc/inittab
cp /penstock/in/guest-late $root/usr/lib/penstock/late
chmod 755 $root/init $root/usr/lib/penstock/late
echo 'root::0:0:root:/root:/bin/sh' >$root/etc/passwd
echo 'root:x:0:' >$root/etc/group
echo 'export PATH=/penstock/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root' >$root/etc/profile
# What the agent's guest-shutdown calls, where it does not call the above.
cat >$root/sbin/shutdown <<'END'
#!/bin/sh
case " $* " in
*" -r "*) exec /sbin/reboot ;;
*" -H "*) exec /sbin/halt ;;
*) exec /sbin/poweroff ;;
esac
END
chmod 755 $root/sbin/shutdown
# What busybox' acpid runs for the power button.
mkdir -p $root/etc/acpi/PWRF
printf '#!/bin/sh\nexec /sbin/poweroff\n' >$root/etc/acpi/PWRF/00000080
chmod 755 $root/etc/acpi/PWRF/00000080

mkdir -p /usr/lib/penstock/guest
# Not compressed: unpacking costs a slow machine more than reading. The console comes as an archive of its own, which the kernel
# unpacks like any other: in a user namespace nobody may make a device node, and an archive that names one needs none.
# Each kernel has one with its own drivers: a VM on an emulated processor spends a third of its start on reading and unpacking.
for release in $(ls /usr/lib/modules); do
    case $release in
    *-rt-*) kernel=-realtime ;;
    *) kernel= ;;
    esac
    modules_of "$release"
    (cat /penstock/in/guest-console && cd $root && find . | LC_ALL=C sort | busybox cpio -o -H newc -R 0:0) \
        >/usr/lib/penstock/guest/initramfs$kernel
    rm -rf $root/lib/modules/"$release"
done
rm -rf $root
cp /penstock/out/vmlinuz /penstock/out/vmlinuz-realtime /usr/lib/penstock/guest/
mkdir -p "$out"
cp /usr/lib/penstock/guest/initramfs /usr/lib/penstock/guest/initramfs-realtime "$out"/
# The board's own kernels: the same files, not twice on the disk.
ln /penstock/out/vmlinuz /penstock/out/vmlinuz-realtime "$out"/
