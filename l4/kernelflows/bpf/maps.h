// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// maps are what flows.c shares with the loops (layout.go), and what its programs tell each other.

#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_FLOWS 65536 // replaced before the maps are made, as the numbers of slots and devices are
#define MAX_LOOPS 64
#define MAX_DEVICES 64

// reason says what became of a packet that may be a flow's; layout.go has the names.
enum reason {
	FORWARDED,
	NO_ENTRY,
	RENEWED,  // the flow is disabled, or of an older generation
	FLAGS,    // SYN, FIN, RST or no ACK
	WINDOW,   // does not fit the sequence numbers
	HEADER,   // options, fragments, tags, malformed or truncated
	HOPS,     // TTL or hop limit of at most 1
	TOO_LONG,
	LINK,     // link addresses
	LOST,     // not forwarded by tc although an earlier program left it to tc
	FAILED,   // dropped: the headers could not be written
	REASONS,
};

struct key4 {
	__u32 dev; // ifindex
	__be32 src, dst;
	__be16 sport, dport;
	__u32 proto;
};

struct key6 {
	__u32 dev;
	__u32 src[4], dst[4];
	__be16 sport, dport;
	__u32 proto;
};

struct entry {
	__u32 slot;   // times 2, plus the direction
	__u32 serial; // that the direction has while it is enabled
};

// direction is written by the loop, before its key is entered. Only serial changes while packets come.
struct direction {
	__u32 serial; // 0: disabled
	__u32 generation;
	__u32 loop;
	__u32 out; // ifindex
	__u32 max_len;
	__be16 sport, dport;
	__be16 l3, ports; // differences of the checksums: by the addresses, by the ports
	__be32 src, dst;  // IPv4
	__u8 next_hop[6], out_mac[6];
	__u8 to[6], from[6];

	__u32 src6[4], dst6[4];
	__u8 any_from, scale, loose;
	__u8 to_peer; // out is one end of a veth pair: the packet is received by the other
	__u32 zero[7];
};

// progress is written by the kernel; the loop writes it before the key is entered, and raises sequence numbers.
struct progress {
	__u64 packets, bytes;
	__u64 last; // CLOCK_MONOTONIC_COARSE, ns
	__u32 end, limit, window, acked;
	__u64 zero[3];
};

struct slot {
	struct direction d[2];
	struct progress p[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct key4);
	__type(value, struct entry);
} flows4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct key6);
	__type(value, struct entry);
} flows6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_FLOWS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_LOOPS);
	__type(key, __u32);
	__type(value, __u32);
} generations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, __u64);
} reasons SEC(".maps");

// finding is what filter has found of the packet that its CPU receives: tc sees it next, before any other.
struct finding {
	__u32 dev, len; // of the packet; dev 0: none
	__u32 slot;     // as in entry
	__u32 six;      // IPv6
	__u32 proto;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct finding);
} findings SEC(".maps");

// rules are the programs behind filter, by device: the driver's own rules.
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MAX_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} rules SEC(".maps");

// steering are the programs behind steer, by device.
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MAX_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} steering SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MAX_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} steering_frags SEC(".maps");

// device is the index of the device in rules and steering; set before a program is loaded for it.
const volatile __u32 device = 0;

// behind_xdp says that steer has judged the packets that forward gets, and counted those that it did not leave to it.
const volatile __u32 behind_xdp = 0;
