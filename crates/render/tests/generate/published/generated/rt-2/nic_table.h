/*
 * NIC table of guest rt-2.
 *
 * Made by Penstock from the machine's model. Change the model, not this file; `penstock verify` compares both with the
 * machine.
 */
#ifndef PENSTOCK_NIC_TABLE_RT_2_H
#define PENSTOCK_NIC_TABLE_RT_2_H

#include <stdint.h>

#define PENSTOCK_MACHINE "xeon-d"
#define PENSTOCK_GUEST "rt-2"

/* The most IP addresses that a NIC below has, at least 1. */
#define PENSTOCK_ADDRESSES_MAX 2
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

#define PENSTOCK_NIC_COUNT 5

/* The MAC address of each NIC, as initializer of `uint8_t macs[PENSTOCK_NIC_COUNT][6]`. */
#define PENSTOCK_MAC_LIST { \
    { 0x02, 0x00, 0x00, 0x00, 0x00, 0x00 }, /* NET0#0 */ \
    { 0x02, 0x00, 0x00, 0x00, 0x00, 0x01 }, /* NET0#1 */ \
    { 0x02, 0x00, 0x00, 0x00, 0x00, 0x02 }, /* NET0#2 */ \
    { 0x02, 0x00, 0x00, 0x00, 0x01, 0x04 }, /* NET1#4 */ \
    { 0x02, 0x00, 0x00, 0x00, 0x01, 0x05 } /* NET1#5 */ \
}

static const struct penstock_nic penstock_nics[PENSTOCK_NIC_COUNT] = {
    {
        "NET0#0", "eth0",
        { 0x02, 0x00, 0x00, 0x00, 0x00, 0x00 },
        0, 0, 0, 1,
        {
            { 4, 24, { 0x0a, 0x14, 0x1e, 0xc8 } }
        }
    },
    {
        "NET0#1", "eth1",
        { 0x02, 0x00, 0x00, 0x00, 0x00, 0x01 },
        1, 0, 0, 1,
        {
            { 4, 24, { 0x0a, 0x14, 0x1e, 0xc9 } }
        }
    },
    {
        "NET0#2", "eth2",
        { 0x02, 0x00, 0x00, 0x00, 0x00, 0x02 },
        2, 0, 0, 1,
        {
            { 4, 24, { 0x0a, 0x14, 0x1e, 0xca } }
        }
    },
    {
        "NET1#4", "eth3",
        { 0x02, 0x00, 0x00, 0x00, 0x01, 0x04 },
        4, 0, 0, 0,
        {
            { 0, 0, { 0 } }
        }
    },
    {
        "NET1#5", "eth4",
        { 0x02, 0x00, 0x00, 0x00, 0x01, 0x05 },
        5, 100, 9000, 2,
        {
            { 4, 24, { 0x0a, 0x14, 0x1f, 0xcd } },
            { 6, 64, { 0xfd, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05 } }
        }
    }
};

/* VFs of the PFs that this guest owns: it holds their MAC addresses. */
#define PENSTOCK_VF_COUNT 0

#endif
