// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Programs that count the frames they see, one counter each, for the tests of loading and attaching.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 4);
} hits SEC(".maps");

static __always_inline void hit(__u32 i)
{
	__u64 *n = bpf_map_lookup_elem(&hits, &i);
	if (n)
		__sync_fetch_and_add(n, 1);
}

SEC("xdp.frags")
int count_xdp(struct xdp_md *ctx)
{
	hit(0);
	return XDP_PASS;
}

struct {
	__uint(priority, 20);
	__uint(XDP_DROP, 1);
	__uint(XDP_PASS, 0);
} _count_then_drop SEC(".xdp_run_config");

SEC("xdp")
int count_then_drop(struct xdp_md *ctx)
{
	hit(1);
	return XDP_DROP;
}

SEC("tcx/ingress")
int count_in(struct __sk_buff *skb)
{
	hit(2);
	return TC_ACT_UNSPEC;
}

SEC("tcx/egress")
int count_out(struct __sk_buff *skb)
{
	hit(3);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
