// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// A kernel option that no kernel has and that is not weak, for the tests of refusals.

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

extern bool CONFIG_MILLRACE_ABSENT __kconfig;

SEC("tc")
int use(struct __sk_buff *skb)
{
	return CONFIG_MILLRACE_ABSENT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
