// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// defence drops or limits packets by their source address, before the kernel allocates anything for
// them. Its maps are written by Defence (defence.go), which has the same layouts.
//
//	front4          hash of an address -> address, verdict: found without a call, for most
//	exact4, exact6  address -> verdict
//	drop4, drop6    prefix -> verdict; the longest counts
//	used            which of these five have entries: the others are not looked up
//	buckets         rule, source -> the time until which the source's packets are accounted for
//	counters        rule -> packets and bytes that were dropped
//	syn             the rate of SYNs above which they are answered here, and how many were
//
// A verdict drops, passes, or has a rate for each source of its prefix. A SYN above the rate of syn, to
// a listener of the kernel, is answered with a SYN cookie (RFC 4987 3.6) out of the interface at once.
// The kernel accepts the cookie in the ACK that follows, and nothing is kept meanwhile. Connections
// that begin so have no window scaling, no SACK and no timestamps.
//
// A verdict that has expired is as if it were not there: the next shorter prefix counts. IPv4 and
// IPv6 behind up to two VLAN tags are looked at; anything else, and what cannot be parsed, passes.
//
// With CHAINED (chained.c) a packet that passes goes on to the program in the map next.

#include "headers.h"
#include "judge.h"
#include "maps.h"
#include "syncookie.h"

static __always_inline int defend(struct xdp_md *ctx)
{
	void *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 bytes = end - p; // of the first buffer
	struct eth *eth = p;

	if (p + sizeof(*eth) > end)
		return XDP_PASS;
	__be16 type = eth->type;
	__u32 at = sizeof(*eth); // of the IP header
	p += sizeof(*eth);
	for (int i = 0; i < MAX_TAGS; i++) {
		struct vlan *tag = p;
		if (type != bpf_htons(0x8100) && type != bpf_htons(0x88a8))
			break;
		if ((void *)(tag + 1) > end)
			return XDP_PASS;
		type = tag->type;
		p += sizeof(*tag);
		at += sizeof(*tag);
	}
	int action = XDP_PASS;
	if (type == bpf_htons(0x0800))
		action = judge4(p, end, bytes);
	else if (type == bpf_htons(0x86dd))
		action = judge6(p, end, bytes);
	return action == XDP_PASS ? synflood(ctx, type, at) : action;
}

#ifdef CHAINED
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} next SEC(".maps");

SEC("xdp.frags")
int chained(struct xdp_md *ctx)
{
	int action = defend(ctx);
	if (action == XDP_PASS)
		bpf_tail_call(ctx, &next, 0); // returns only where the program is not there yet
	return action;
}
#else
struct {
	__uint(priority, 5); // before programs that count or steer
	__uint(XDP_PASS, 1);
} _defence SEC(".xdp_run_config");

SEC("xdp.frags")
int defence(struct xdp_md *ctx) { return defend(ctx); }
#endif

char _license[] SEC("license") = "Dual BSD/GPL";
