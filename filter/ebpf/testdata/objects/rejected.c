// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// A program that the verifier rejects: it reads the packet without a look at its length.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int reads_beyond(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	return data[20] == 6 ? XDP_DROP : XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
