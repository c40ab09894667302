// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// A program at the entry of a function that no kernel has, for the tests of refusals.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("fentry/millrace_absent")
int at_entry(void *ctx)
{
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
