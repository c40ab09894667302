// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The smallest XDP program that drops.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int drop_all(struct xdp_md *ctx)
{
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
