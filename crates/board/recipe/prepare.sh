#!/bin/sh
# Runs inside the new tree, once, when all packages are installed: gathers what a board's start needs outside the root
# file system into /penstock, and drops from the tree what no board uses.
set -eu
out=/penstock/out
mkdir -p $out/modules $out/qemu/lib $out/qemu/share

# Uncompressed modules load faster under software emulation, and busybox can load nothing else.
find /usr/lib/modules -name '*.ko.xz' -print0 | xargs -0 -n 50 -P 2 xz -d

# Two kernels, the standard one and the one with PREEMPT_RT: `kernels` says which is which.
for release in $(ls /usr/lib/modules); do
    depmod "$release" &
done
wait
for release in $(ls /usr/lib/modules); do
    case $release in
    *-rt-*) echo "realtime $release" >>$out/kernels && cp /boot/vmlinuz-"$release" $out/vmlinuz-realtime ;;
    *) echo "standard $release" >>$out/kernels && cp /boot/vmlinuz-"$release" $out/vmlinuz ;;
    esac
    for name in virtio_blk squashfs overlay; do
        modprobe --show-depends -S "$release" "$name" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
    done | awk '!seen[$0]++' | while read -r file; do
        mkdir -p $out/modules/"$release"
        cp "$file" $out/modules/"$release"/
        echo "$release/${file##*/}" >>$out/modules.order
    done
done
cp /bin/busybox $out/busybox

# QEMU with all that it loads, so that it runs on any host through its own dynamic loader.
cp /usr/bin/qemu-system-x86_64 $out/qemu/
ldd /usr/bin/qemu-system-x86_64 | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*ld-linux[^ ]*\).*/\1/p' |
    while read -r library; do cp -L "$library" $out/qemu/lib/; done
for firmware in bios-256k.bin linuxboot_dma.bin kvmvapic.bin pvh.bin multiboot_dma.bin; do
    for directory in /usr/share/seabios /usr/share/qemu; do
        if [ -e $directory/$firmware ]; then cp -L $directory/$firmware $out/qemu/share/; fi
    done
done
dpkg-query -W -f '${Package} ${Version}\n' >$out/packages

mkdir -p /usr/lib/penstock
for file in start start-vms inittab sshd_config; do cp /penstock/in/$file /usr/lib/penstock/; done
chmod 755 /usr/lib/penstock/start
ln -sf /usr/lib/penstock/inittab /etc/inittab
sed -i 's/^root:[^:]*:/root:*:/' /etc/shadow
echo board >/etc/hostname
printf '127.0.0.1 localhost board\n::1 localhost\n' >/etc/hosts

# Who may look at consoles over SSH and nothing else. A star is no password, where an exclamation mark would be a
# locked account, which sshd refuses.
groupadd --system penstock-console
useradd --system --no-create-home --home-dir / --gid penstock-console --shell /bin/sh console
sed -i 's/^console:[^:]*:/console:*:/' /etc/shadow

sh /penstock/in/guest-make $out/guest

rm -f /etc/ssh/ssh_host_* /etc/machine-id
# Of QEMU stays what VMs with nothing but a serial console need. Without the emulator of instructions libvirt also
# asks QEMU half as much.
keep=/penstock/keep
mkdir -p $keep
for file in kvmvapic.bin linuxboot_dma.bin multiboot_dma.bin pvh.bin; do cp /usr/share/qemu/$file $keep/; done
cp /usr/share/seabios/bios-256k.bin $keep/
rm -rf /boot/* /usr/bin/qemu-system-amd64 /usr/bin/qemu-system-x86_64-* /usr/bin/qemu-*-helper \
    /usr/lib/x86_64-linux-gnu/qemu /usr/share/qemu /usr/share/seabios /usr/lib/ipxe /usr/sbin/qemu-ga
mv $keep /usr/share/qemu
rm -rf /var/cache/* /var/lib/apt/lists/*
mkdir -p /var/cache/libvirt/qemu
# libvirt asks each VM's QEMU for every feature of its CPU, in some 570 questions of 59 kB together, and QEMU reads them byte by byte: a third of
# what the start of a VM costs an emulated processor. Without this it asks once, for all of them (qemuMonitorGetGuestCPUx86).
echo 'capability_filters = [ "cpu-unavailable-features" ]' >>/etc/libvirt/qemu.conf
