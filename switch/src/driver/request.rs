//! The numbers of vhost-user's messages, written down a second time: what the switch takes them for is what is tried.

pub const GET_FEATURES: u32 = 1;
pub const SET_FEATURES: u32 = 2;
pub const SET_OWNER: u32 = 3;
pub const SET_MEM_TABLE: u32 = 5;
pub const SET_LOG_BASE: u32 = 6;
pub const SET_LOG_FD: u32 = 7;
pub const SET_VRING_NUM: u32 = 8;
pub const SET_VRING_ADDR: u32 = 9;
pub const SET_VRING_BASE: u32 = 10;
pub const GET_VRING_BASE: u32 = 11;
pub const SET_VRING_KICK: u32 = 12;
pub const SET_VRING_CALL: u32 = 13;
pub const SET_VRING_ERR: u32 = 14;
pub const SET_PROTOCOL_FEATURES: u32 = 16;
pub const SET_VRING_ENABLE: u32 = 18;
pub const SEND_RARP: u32 = 19;
pub const SET_BACKEND_REQ_FD: u32 = 21;
pub const IOTLB: u32 = 22;
pub const GET_INFLIGHT: u32 = 31;
pub const SET_INFLIGHT: u32 = 32;
pub const ADD_MEM_REG: u32 = 37;
pub const REM_MEM_REG: u32 = 38;
/// The last that the protocol knows, and some.
pub const LAST: u32 = 46;
