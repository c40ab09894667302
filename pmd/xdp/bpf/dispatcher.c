// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// xdp_dispatcher calls up to ten XDP programs of one interface in turn (version 2 of libxdp's
// dispatcher protocol). Each component replaces one of the functions prog0 to prog9 (freplace). Its
// result either ends the chain or continues it, as the component's bitmap of actions says.
//
// conf is in .rodata, which is filled in and frozen before the program is loaded: the verifier then
// removes the calls beyond num_progs. Its layout, the names of the program and of the functions and
// the section xdp_metadata are the protocol: other loaders read them. config.go has the layout in Go.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MAX_PROGS 10
#define CONTINUE 31 // the result of a function that no component replaces: always in the bitmap

struct config {
	__u8 magic;
	__u8 version;
	__u8 num_progs;
	__u8 is_frags; // the dispatcher is loaded as multi-buffer aware
	__u32 actions[MAX_PROGS]; // bitmap of the results that continue the chain
	__u32 prios[MAX_PROGS];
	__u32 flags[MAX_PROGS]; // BPF_F_XDP_HAS_FRAGS of the component
};

// volatile: the compiler must not take the zeroes of the source for the values at run time.
volatile const struct config conf = {};

// The result is volatile so that calls are neither inlined nor predicted. A component may change the
// packet only where the function that it replaces may, hence the adjustment by nothing.
#define COMPONENT(i)                                   \
	__attribute__((noinline)) int prog##i(struct xdp_md *ctx) \
	{                                              \
		volatile int result = CONTINUE;        \
		if (!ctx)                              \
			return XDP_ABORTED;            \
		bpf_xdp_adjust_tail(ctx, 0);           \
		return result;                         \
	}

COMPONENT(0)
COMPONENT(1)
COMPONENT(2)
COMPONENT(3)
COMPONENT(4)
COMPONENT(5)
COMPONENT(6)
COMPONENT(7)
COMPONENT(8)
COMPONENT(9)

#define CALL(i)                                        \
	if (num_progs <= i)                            \
		return XDP_PASS;                       \
	result = prog##i(ctx);                         \
	if (!(1U << (result & 31) & conf.actions[i]))  \
		return result;

SEC("xdp")
int xdp_dispatcher(struct xdp_md *ctx)
{
	__u8 num_progs = conf.num_progs;
	int result;

	CALL(0)
	CALL(1)
	CALL(2)
	CALL(3)
	CALL(4)
	CALL(5)
	CALL(6)
	CALL(7)
	CALL(8)
	CALL(9)
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
__uint(dispatcher_version, 2) SEC("xdp_metadata");
