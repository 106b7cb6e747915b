#!/bin/sh
# Runs inside the new tree, once, when all packages are installed: gathers what a board's start needs outside the root
# file system into /penstock, and drops from the tree what no board uses.
set -eu
out=/penstock/out
release=$(ls /usr/lib/modules)
modules=/usr/lib/modules/$release
mkdir -p $out/modules $out/qemu/lib $out/qemu/share

# Uncompressed modules load faster under software emulation, and busybox can load nothing else.
find "$modules" -name '*.ko.xz' -exec xz -d {} +
depmod "$release"

cp /boot/vmlinuz-"$release" $out/vmlinuz
cp /bin/busybox $out/busybox
for name in virtio_blk squashfs overlay; do
    for file in $(modprobe --show-depends -S "$release" "$name" | sed -n 's/^insmod \([^ ]*\).*/\1/p'); do
        base=${file##*/}
        if [ ! -e "$out/modules/$base" ]; then
            cp "$file" $out/modules/
            echo "$base" >>$out/modules.order
        fi
    done
done

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
echo "$release" >$out/kernel

cp -r /penstock/in /usr/lib/penstock
chmod 755 /usr/lib/penstock/start
ln -sf /usr/lib/penstock/inittab /etc/inittab
sed -i 's/^root:[^:]*:/root:*:/' /etc/shadow
echo board >/etc/hostname
printf '127.0.0.1 localhost board\n::1 localhost\n' >/etc/hosts
rm -f /etc/ssh/ssh_host_* /etc/machine-id
rm -rf /boot/* /usr/bin/qemu-* /usr/lib/x86_64-linux-gnu/qemu /usr/share/qemu /usr/share/seabios /usr/lib/ipxe
rm -rf /var/cache/* /var/lib/apt/lists/*
