// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Maps of many types, for the tests of their JSON form. The program makes the compiler keep them.

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

enum colour { RED, GREEN = 5, BLUE = -1 };

struct point {
	__s32 x;
	__s64 y;
};

typedef __u16 port_t;

struct record {
	__u8 small;
	bool flag;
	char name[8];
	port_t ports[3];
	enum colour colour;
	struct point at;
	union {
		__u32 word;
		__u8 bytes[4];
	};
	__u32 low : 3;
	__u32 high : 29;
	__s8 below : 4;
	double ratio;
	__u64 big;
	unsigned __int128 huge;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct point);
	__type(value, struct record);
	__uint(max_entries, 64);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 2);
} percpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(key_size, 4);
	__uint(value_size, 6);
	__uint(max_entries, 16);
} untyped SEC(".maps");

struct prefix {
	__u32 bits;
	__u8 addr[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct prefix);
	__type(value, __u8);
	__uint(max_entries, 16);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} prefixes SEC(".maps");

volatile const __u32 setting = 7;
__u64 total;

SEC("tc")
int use(struct __sk_buff *skb)
{
	struct point at = {};
	__u32 zero = 0;
	struct prefix p = {};
	total += setting;
	void *a = bpf_map_lookup_elem(&records, &at);
	void *b = bpf_map_lookup_elem(&percpu, &zero);
	void *c = bpf_map_lookup_elem(&untyped, &zero);
	void *d = bpf_map_lookup_elem(&prefixes, &p);
	return a && b && c && d;
}

char _license[] SEC("license") = "Dual BSD/GPL";
