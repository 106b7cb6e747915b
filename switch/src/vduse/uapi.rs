//! The kernel's words for VDUSE: `include/uapi/linux/vduse.h`, version 0 of its interface.

/// `VDUSE_API_VERSION`.
pub const VERSION: u64 = 0;
/// Bytes of a name, with the zero behind it (`VDUSE_NAME_MAX`).
pub const NAME: usize = 256;
/// `VIRTIO_ID_NET`.
pub const NETWORK: u32 = 1;
/// `VDUSE_ACCESS_RO`.
pub const READ_ONLY: u8 = 1;
/// `VDUSE_ACCESS_RW`.
pub const READ_WRITE: u8 = 3;
/// `VDUSE_GET_VQ_STATE`.
pub const GET_VQ_STATE: u32 = 0;
/// `VDUSE_SET_STATUS`.
pub const SET_STATUS: u32 = 1;
/// `VDUSE_UPDATE_IOTLB`.
pub const UPDATE_IOTLB: u32 = 2;

/// `struct vduse_dev_config`, without what comes behind it.
#[repr(C)]
pub struct DeviceConfig {
    pub name: [u8; NAME],
    pub vendor: u32,
    pub device: u32,
    pub features: u64,
    pub queues: u32,
    pub alignment: u32,
    pub reserved: [u32; 13],
    pub config_size: u32,
}

/// `struct vduse_iotlb_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IotlbEntry {
    pub offset: u64,
    pub start: u64,
    pub last: u64,
    pub permission: u8,
}

/// `struct vduse_config_data`, without what comes behind it.
#[repr(C)]
pub struct ConfigData {
    pub offset: u32,
    pub length: u32,
}

/// `struct vduse_vq_config`.
#[repr(C)]
#[derive(Default)]
pub struct QueueConfig {
    pub index: u32,
    pub most: u16,
    pub reserved: [u16; 13],
}

/// `struct vduse_vq_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueInfo {
    pub index: u32,
    pub entries: u32,
    pub descriptors: u64,
    pub driver: u64,
    pub device: u64,
    /// The index of a split ring, or four numbers of a packed one.
    pub state: [u16; 4],
    pub ready: u8,
}

/// `struct vduse_vq_eventfd`.
#[repr(C)]
pub struct QueueEvent {
    pub index: u32,
    pub fd: i32,
}

/// `struct vduse_dev_request`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    pub kind: u32,
    pub id: u32,
    pub reserved: [u32; 4],
    /// A ring's number, or the status in its lowest byte.
    pub body: [u32; 32],
}

/// `struct vduse_dev_response`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Response {
    pub id: u32,
    /// 0: it was done (`VDUSE_REQ_RESULT_OK`); 1: it was not.
    pub result: u32,
    pub reserved: [u32; 4],
    pub body: [u32; 32],
}

nix::ioctl_write_ptr!(set_api_version, 0x81, 0x01, u64);
nix::ioctl_write_ptr!(create_device, 0x81, 0x02, DeviceConfig);
nix::ioctl_write_ptr!(destroy_device, 0x81, 0x03, [u8; NAME]);
nix::ioctl_readwrite!(iotlb_get_fd, 0x81, 0x10, IotlbEntry);
nix::ioctl_read!(get_features, 0x81, 0x11, u64);
nix::ioctl_write_ptr!(set_config, 0x81, 0x12, ConfigData);
nix::ioctl_none!(inject_config_irq, 0x81, 0x13);
nix::ioctl_write_ptr!(set_up_queue, 0x81, 0x14, QueueConfig);
nix::ioctl_readwrite!(queue_info, 0x81, 0x15, QueueInfo);
nix::ioctl_write_ptr!(set_queue_kick, 0x81, 0x16, QueueEvent);
nix::ioctl_write_ptr!(inject_queue_irq, 0x81, 0x17, u32);
