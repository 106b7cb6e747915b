# Part of the start script of a board with VMs: libvirt, and what systemd and udev would do for it.
modprobe -a kvm_amd kvm_intel 2>/dev/null
# As udev's rules have it: QEMU does not run as root.
$bb chgrp kvm /dev/kvm
$bb chmod 660 /dev/kvm
$bb mkdir -p /dev/hugepages /run/libvirt
$bb mount -t hugetlbfs hugetlbfs /dev/hugepages
# A halted CPU of a VM is not waited for by one of the board's few.
echo 0 >/sys/module/kvm/parameters/halt_poll_ns

# As systemd does: a daemon that dies is started again.
supervise() {
    while :; do
        "$@" >>"/run/${1##*/}.log" 2>&1
        $bb sleep 1
    done
}
supervise virtlogd &
supervise libvirtd &
tries=0
while [ ! -S /run/libvirt/libvirt-sock ] && [ $tries -lt 200 ]; do
    tries=$((tries + 1))
    $bb usleep 50000
done
say "libvirtd started"
# What it does not tell in time it is asked for when it is needed: a board is not kept from being ready by that.
$bb timeout 150 virsh -q domcapabilities --virttype kvm --machine q35 >/run/libvirt/domcapabilities.xml
say "libvirt knows its QEMU"
