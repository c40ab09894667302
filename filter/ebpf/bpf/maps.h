// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// maps are what defence.c shares with Defence (defence.go).

#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_PREFIXES (1 << 20)
#define MAX_SOURCES (1 << 18)
#define FRONT_BITS 16
#define UNTIMED 16 // packets that a rule drops by front4 on a CPU between two looks at the clock
#define MAX_RULES 4096
#define MAX_TAGS 2
#define MAX_EXPIRED 4 // expired verdicts that cover each other, before the packet passes
#define SECOND 1000000000ULL
#define MAX_AT 22 // behind two tags
#define MIN_FRAME 60
#define WINDOW 64240
#define CURRENT_NETNS -1L

enum { DROP, LIMIT, ACCEPT }; // actions of a verdict

struct verdict {
	__u64 until; // CLOCK_MONOTONIC in ns; 0: until it is removed
	__u64 each;  // of LIMIT: ns of one packet at the rate
	__u64 ahead; // of LIMIT: how far the bucket may lie ahead of now, in ns
	__u32 rule;  // index of counters
	__u16 action;
	__u16 bits; // length of the prefix, for the search for a shorter one
};

struct addr6 {
	__be32 a[4];
};

struct prefix4 {
	__u32 bits;
	__be32 addr;
};

struct prefix6 {
	__u32 bits;
	struct addr6 addr;
};

struct source {
	__u32 rule;
	struct addr6 addr; // IPv4-mapped (RFC 4291 2.5.5.2), or an IPv6 /64, or, for longer prefixes, an address
};

struct count {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __be32);
	__type(value, struct verdict);
	__uint(max_entries, MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} exact4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct addr6);
	__type(value, struct verdict);
	__uint(max_entries, MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} exact6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct prefix4);
	__type(value, struct verdict);
	__uint(max_entries, MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} drop4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct prefix6);
	__type(value, struct verdict);
	__uint(max_entries, MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} drop6 SEC(".maps");

// front is an address with the verdict on it. 0.0.0.0 is a free place. Only the process that made the maps writes places: the
// verdict first, then the address. It also removes verdicts that have ended: reading the clock costs more than all else, so
// the program does it for one packet of UNTIMED.
struct front {
	__be32 addr;
	__u32 zero;
	struct verdict v;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct front);
	__uint(max_entries, 1 << FRONT_BITS);
} front4 SEC(".maps");

enum { USED_EXACT4, USED_PREFIX4, USED_EXACT6, USED_PREFIX6, USED_FRONT4, TABLES }; // indices of used

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, TABLES);
} used SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct source);
	__type(value, __u64);
	__uint(max_entries, MAX_SOURCES);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct count);
	__uint(max_entries, MAX_RULES);
} counters SEC(".maps");

struct syn_state {
	__u64 bucket;   // as in buckets, of this CPU
	__u64 answered; // SYNs
	__u32 rate;     // a second of each CPU that the kernel gets; 0: all
	__u32 burst;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct syn_state);
	__uint(max_entries, 1);
} syn SEC(".maps");
