/*
 * NIC table of guest empty.
 *
 * Made by Penstock from the machine's model. Change the model, not this file; `penstock verify` compares both with the
 * machine.
 */
#ifndef PENSTOCK_NIC_TABLE_EMPTY_H
#define PENSTOCK_NIC_TABLE_EMPTY_H

#include <stdint.h>

#define PENSTOCK_MACHINE "xeon-d"
#define PENSTOCK_GUEST "empty"

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

#define PENSTOCK_NIC_COUNT 0

/* VFs of the PFs that this guest owns: it holds their MAC addresses. */
#define PENSTOCK_VF_COUNT 0

#endif
