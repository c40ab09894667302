// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Kernel configuration as variables, weak ones too, for the tests of loading. The program stores them in its globals.

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

extern unsigned int LINUX_KERNEL_VERSION __kconfig;
extern bool CONFIG_BPF __kconfig;
extern bool CONFIG_BPF_SYSCALL __kconfig __weak;
extern bool CONFIG_MILLRACE_ABSENT __kconfig __weak;
extern enum libbpf_tristate CONFIG_MILLRACE_ABSENT_MODULE __kconfig __weak;
extern unsigned int CONFIG_MILLRACE_ABSENT_NUMBER __kconfig __weak;

__u32 version, bpf, bpf_syscall, absent = 9, absent_module = 9, absent_number = 9;

SEC("tc")
int store(struct __sk_buff *skb)
{
	version = LINUX_KERNEL_VERSION;
	bpf = CONFIG_BPF;
	bpf_syscall = CONFIG_BPF_SYSCALL;
	absent = CONFIG_MILLRACE_ABSENT;
	absent_module = CONFIG_MILLRACE_ABSENT_MODULE;
	absent_number = CONFIG_MILLRACE_ABSENT_NUMBER;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
