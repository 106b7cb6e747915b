/*
 * NIC table of guest pf0.
 *
 * Made by Penstock from the machine's model. Change the model, not this file; `penstock verify` compares both with the
 * machine.
 */
#ifndef PENSTOCK_NIC_TABLE_PF0_H
#define PENSTOCK_NIC_TABLE_PF0_H

#include <stdint.h>

#define PENSTOCK_MACHINE "xeon-d"
#define PENSTOCK_GUEST "pf0"

/* The most IP addresses that a NIC below has, at least 1. */
#define PENSTOCK_ADDRESSES_MAX 1
/* The VF index of a NIC that is a PF. */
#define PENSTOCK_IS_PF 0xffffu

/* An IP address in network byte order; an IPv4 address has the first four bytes. */
struct penstock_address {
    uint8_t family; /* 4 or 6 */
    uint8_t prefix; /* prefix length in bits */
    uint8_t bytes[16];
};

/* A NIC of this guest. */
struct penstock_nic {
    const char *function;  /* the function's name in the model */
    const char *interface_name;
    uint8_t mac[6];
    uint16_t vf;           /* VF index, or PENSTOCK_IS_PF */
    uint16_t vlan;         /* port VLAN, tagged and untagged by the NIC; 0: none */
    uint32_t mtu;          /* 0: the driver's default */
    uint32_t address_count;
    struct penstock_address addresses[PENSTOCK_ADDRESSES_MAX];
};

/* A VF of a PF that this guest owns. */
struct penstock_vf {
    const char *function;
    const char *owner;     /* the guest that owns it; "": none */
    uint8_t mac[6];
    uint16_t vf;
    uint16_t vlan;
};

#define PENSTOCK_NIC_COUNT 2

/* The MAC address of each NIC, as initializer of `uint8_t macs[PENSTOCK_NIC_COUNT][6]`. */
#define PENSTOCK_MAC_LIST { \
    { 0x0c, 0xc4, 0x7a, 0x9a, 0x61, 0xea }, /* NET0 */ \
    { 0x02, 0x00, 0x00, 0x00, 0x00, 0x03 } /* NET0#3 */ \
}

static const struct penstock_nic penstock_nics[PENSTOCK_NIC_COUNT] = {
    {
        "NET0", "eth0",
        { 0x0c, 0xc4, 0x7a, 0x9a, 0x61, 0xea },
        PENSTOCK_IS_PF, 0, 0, 1,
        {
            { 4, 24, { 0x0a, 0x14, 0x1e, 0x01 } }
        }
    },
    {
        "NET0#3", "eth1",
        { 0x02, 0x00, 0x00, 0x00, 0x00, 0x03 },
        3, 0, 0, 0,
        {
            { 0, 0, { 0 } }
        }
    }
};

/* VFs of the PFs that this guest owns: it holds their MAC addresses. */
#define PENSTOCK_VF_COUNT 7

static const struct penstock_vf penstock_vfs[PENSTOCK_VF_COUNT] = {
    { "NET0#0", "rt-2", { 0x02, 0x00, 0x00, 0x00, 0x00, 0x00 }, 0, 0 },
    { "NET0#1", "rt-2", { 0x02, 0x00, 0x00, 0x00, 0x00, 0x01 }, 1, 0 },
    { "NET0#2", "rt-2", { 0x02, 0x00, 0x00, 0x00, 0x00, 0x02 }, 2, 0 },
    { "NET0#3", "pf0", { 0x02, 0x00, 0x00, 0x00, 0x00, 0x03 }, 3, 0 },
    { "NET0#4", "", { 0x02, 0xc8, 0x59, 0xe0, 0x4d, 0x04 }, 4, 0 },
    { "NET0#5", "", { 0x02, 0xc8, 0x59, 0xe0, 0x4d, 0x05 }, 5, 0 },
    { "NET0#6", "", { 0x02, 0xc8, 0x59, 0xe0, 0x4d, 0x06 }, 6, 0 }
};

#endif
