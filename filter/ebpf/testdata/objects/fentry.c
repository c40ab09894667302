// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// A program at the entry of a function of the kernel, for the tests of refusals.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("fentry/ip_rcv")
int at_entry(void *ctx)
{
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
