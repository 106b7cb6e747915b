//! A machine with all that a lifeline can go over.

/// Two ports in a bond with a VLAN on it, a port in a bridge of Open vSwitch's making, a veth into a bridge.
pub const NETWORK: &str = r"
[/sys/devices/pci0000:00/0000:00:01.0]
0000:01:00.0/net/eth0/ifindex = 2
0000:01:00.0/net/eth0/flags = 0x1903
0000:01:00.0/net/eth0/device -> ../../../0000:01:00.0
0000:01:00.1/net/eth1/ifindex = 3
0000:01:00.1/net/eth1/flags = 0x1903
0000:01:00.1/net/eth1/device -> ../../../0000:01:00.1
0000:02:00.0/virtio0/net/eth2/ifindex = 4
0000:02:00.0/virtio0/net/eth2/flags = 0x1003
0000:02:00.0/virtio0/net/eth2/device -> ../../../virtio0
0000:03:00.0/usb1/1-1/1-1:1.0/net/usb0/ifindex = 9
0000:03:00.0/usb1/1-1/1-1:1.0/net/usb0/flags = 0x1003
0000:03:00.0/usb1/1-1/1-1:1.0/net/usb0/device -> ../../../1-1:1.0
[/sys/devices/virtual/net]
lo/ifindex = 1
lo/flags = 0x9
bond0/ifindex = 5
bond0/flags = 0x1403
bond0/bonding/slaves = eth0 eth1
bond0/lower_eth0 -> ../../../pci0000:00/0000:00:01.0/0000:01:00.0/net/eth0
bond0.7/ifindex = 6
bond0.7/flags = 0x1003
bond0.7/lower_bond0 -> ../bond0
ovs-system/ifindex = 7
ovs-system/iflink = 7
ovs-system/lower_eth2 -> ../../../pci0000:00/0000:00:01.0/0000:02:00.0/virtio0/net/eth2
br-ex/ifindex = 8
br-ex/iflink = 8
br-ex/flags = 0x1003
veth0/ifindex = 10
veth0/iflink = 11
veth1/ifindex = 11
veth1/iflink = 10
veth1/master -> ../br0
br0/ifindex = 12
br0/brif/veth1 -> ../../veth1
br0/brif/usb0 -> ../../../../pci0000:00/0000:00:01.0/0000:03:00.0/usb1/1-1/1-1:1.0/net/usb0
away/ifindex = 13
away/iflink = 2000
wg0/ifindex = 14
wg0/iflink = 14
wg0/tun_flags = 0x1001
[/sys/class/net]
eth0 -> ../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/net/eth0
eth1 -> ../../devices/pci0000:00/0000:00:01.0/0000:01:00.1/net/eth1
eth2 -> ../../devices/pci0000:00/0000:00:01.0/0000:02:00.0/virtio0/net/eth2
usb0 -> ../../devices/pci0000:00/0000:00:01.0/0000:03:00.0/usb1/1-1/1-1:1.0/net/usb0
lo -> ../../devices/virtual/net/lo
bond0 -> ../../devices/virtual/net/bond0
bond0.7 -> ../../devices/virtual/net/bond0.7
ovs-system -> ../../devices/virtual/net/ovs-system
br-ex -> ../../devices/virtual/net/br-ex
veth0 -> ../../devices/virtual/net/veth0
veth1 -> ../../devices/virtual/net/veth1
br0 -> ../../devices/virtual/net/br0
away -> ../../devices/virtual/net/away
wg0 -> ../../devices/virtual/net/wg0
";

/// The root on LVM on two NVMe drives, swap on a partition, data on Btrfs, an NFS share and an image in a loop device.
pub const STORAGE: &str = r"
[/sys/devices/pci0000:00/0000:00:02.0]
0000:05:00.0/nvme/nvme0/nvme0n1/nvme0n1p1/partition = 1
0000:05:00.0/nvme/nvme0/nvme0n1/nvme0n1p2/partition = 2
0000:05:00.0/nvme/nvme0/nvme0n1/size = 1
0000:06:00.0/nvme/nvme1/nvme1n1/size = 1
0000:07:00.0/ata1/host0/target0:0:0/0:0:0:0/block/sda/size = 1
0000:07:00.0/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda1/partition = 1
0000:07:00.0/ata2/host1/target1:0:0/1:0:0:0/block/sdb/size = 1
[/sys/devices/platform/host9/session4/target9:0:0/9:0:0:1/block/sdz]
size = 1
[/sys/devices/virtual]
block/dm-0/dm/name = vg-root
block/dm-0/slaves/md0 -> ../../md0
block/md0/slaves/nvme0n1p2 -> ../../../../pci0000:00/0000:00:02.0/0000:05:00.0/nvme/nvme0/nvme0n1/nvme0n1p2
block/md0/slaves/nvme1n1 -> ../../../../pci0000:00/0000:00:02.0/0000:06:00.0/nvme/nvme1/nvme1n1
block/loop0/loop/backing_file = /images/a.img
block/zram0/size = 1
block/dm-9/dm/name = lost
nvme-subsystem/nvme-subsys0/nvme2n1/size = 1
nvme-subsystem/nvme-subsys0/nvme2 -> ../../../pci0000:00/0000:00:02.0/0000:08:00.0/nvme/nvme2
nvme-subsystem/nvme-subsys0/nvme3 -> ../../nvme-fabrics/ctl/nvme3
nvme-fabrics/ctl/nvme3/address = traddr=198.51.100.9,trsvcid=4420
[/sys/devices/pci0000:00/0000:00:02.0/0000:08:00.0/nvme/nvme2]
address = 0000:08:00.0
[/sys/class/nvme]
nvme2 -> ../../devices/pci0000:00/0000:00:02.0/0000:08:00.0/nvme/nvme2
nvme3 -> ../../devices/virtual/nvme-fabrics/ctl/nvme3
[/sys/class/iscsi_connection/connection4:0]
address = 198.51.100.8
[/sys/class/block]
nvme0n1 -> ../../devices/pci0000:00/0000:00:02.0/0000:05:00.0/nvme/nvme0/nvme0n1
nvme0n1p1 -> ../../devices/pci0000:00/0000:00:02.0/0000:05:00.0/nvme/nvme0/nvme0n1/nvme0n1p1
nvme0n1p2 -> ../../devices/pci0000:00/0000:00:02.0/0000:05:00.0/nvme/nvme0/nvme0n1/nvme0n1p2
nvme1n1 -> ../../devices/pci0000:00/0000:00:02.0/0000:06:00.0/nvme/nvme1/nvme1n1
nvme2n1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme2n1
sda -> ../../devices/pci0000:00/0000:00:02.0/0000:07:00.0/ata1/host0/target0:0:0/0:0:0:0/block/sda
sda1 -> ../../devices/pci0000:00/0000:00:02.0/0000:07:00.0/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda1
sdb -> ../../devices/pci0000:00/0000:00:02.0/0000:07:00.0/ata2/host1/target1:0:0/1:0:0:0/block/sdb
sdz -> ../../devices/platform/host9/session4/target9:0:0/9:0:0:1/block/sdz
dm-0 -> ../../devices/virtual/block/dm-0
dm-9 -> ../../devices/virtual/block/dm-9
md0 -> ../../devices/virtual/block/md0
loop0 -> ../../devices/virtual/block/loop0
zram0 -> ../../devices/virtual/block/zram0
[/sys/dev/block]
253:0 -> ../../devices/virtual/block/dm-0
253:9 -> ../../devices/virtual/block/dm-9
7:0 -> ../../devices/virtual/block/loop0
8:16 -> ../../devices/platform/host9/session4/target9:0:0/9:0:0:1/block/sdz
259:9 -> ../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme2n1
[/sys/fs/btrfs/12345678-0000/devices]
sda1 -> ../../../../devices/pci0000:00/0000:00:02.0/0000:07:00.0/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda1
sdb -> ../../../../devices/pci0000:00/0000:00:02.0/0000:07:00.0/ata2/host1/target1:0:0/1:0:0:0/block/sdb
";

pub const MOUNTED: &str = r"
/proc/self/mountinfo <<END
1 0 0:2 / / rw - rootfs rootfs rw
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/mapper/vg-root rw
23 22 0:21 / /proc rw - proc proc rw
24 22 0:40 / /data\040set rw - btrfs /dev/sda1 rw,space_cache
25 22 7:0 / /snap rw - squashfs /dev/loop0 ro
26 22 0:50 / /srv rw - nfs4 files:/srv rw,vers=4.2,addr=198.51.100.7
27 22 0:51 / /tmp rw - tmpfs tmpfs rw
28 22 8:16 / /far rw - ext4 /dev/sdz rw
29 22 259:9 / /fast rw - ext4 /dev/nvme2n1 rw
END
/proc/swaps <<END
Filename Type Size Used Priority
/dev/nvme0n1p1 partition 1 0 -2
/dev/zram0 partition 1 0 100
/swapfile file 1 0 -3
END
";
