//! A QEMU machine with SR-IOV devices: composition rules, image, boot, snapshot.
