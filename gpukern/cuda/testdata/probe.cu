/* Kernels for tests and benchmarks that measure the way to a device and show that it works: what a launch costs, how fast memory
 * is read in place, and how the host and a kernel that keeps running speak with each other. */
#include "../../../packet/desc.h"
#include "../gk.h"

/* gk_probe_read adds up the words of size bytes at mem, a multiple of 16 on a boundary of 16: what kernels
 * can read of mapped host memory or of the device's own. */
struct gk_probe_read {
	const u8 *mem;
	u64 size;
	u32 *sum; /* the total is added here */
};

enum { PROBE_FLIGHT = 4 }; /* loads under way in each thread */

GK_FN u32 add_quad(const u8 *a)
{
	struct gk_quad q = gk_load_quad(a);
	return q.w[0] + q.w[1] + q.w[2] + q.w[3];
}

GK_KERNEL(gk_probe_read, struct gk_probe_read, 256)
{
	u64 step = (u64)gk_threads() * sizeof(struct gk_quad);
	u64 at = (u64)gk_global_thread() * sizeof(struct gk_quad);
	u32 sum = 0;
	for (; at + (PROBE_FLIGHT - 1) * step < p->size; at += PROBE_FLIGHT * step) {
		struct gk_quad q[PROBE_FLIGHT];
#pragma unroll
		for (u32 i = 0; i < PROBE_FLIGHT; i++)
			q[i] = gk_load_quad(p->mem + at + i * step);
#pragma unroll
		for (u32 i = 0; i < PROBE_FLIGHT; i++)
			sum += q[i].w[0] + q[i].w[1] + q[i].w[2] + q[i].w[3];
	}
	for (; at < p->size; at += step)
		sum += add_quad(p->mem + at);
	gk_atomic_add(p->sum, sum);
}

/* gk_probe_sum adds up the bytes of each packet into its hash: a pass that reads every byte and does
 * nothing else. A thread for each packet, by bytes: it is no measure of speed. */
struct gk_probe_sum {
	const u8 *mem;
	struct mr_desc *desc;
	u32 n;
	u32 add; /* to each sum */
};

GK_KERNEL(gk_probe_sum, struct gk_probe_sum, 256)
{
	for (u32 i = gk_global_thread(); i < p->n; i += gk_threads()) {
		struct mr_desc *d = &p->desc[i];
		u32 off = gk_load_u32(&d->off), len = gk_load_u32(&d->len) & 0xffff, sum = p->add;
		for (u32 j = 0; j < len; j++)
			sum += gk_load_u8(p->mem + off + j);
		gk_store_release(&d->hash, sum);
	}
}

/* gk_probe_echo answers a word: what the host writes to ask comes back in answer, until it writes
 * PROBE_STOP or the kernel has run for its time. One thread. */
struct gk_probe_echo {
	const u32 *ask;
	u32 *answer;
	u64 life; /* nanoseconds */
};

enum : u32 { PROBE_STOP = ~0u };

GK_KERNEL(gk_probe_echo, struct gk_probe_echo, 32)
{
	if (gk_global_thread() != 0)
		return;
	u64 start = gk_clock();
	for (u32 said = 0; gk_clock() - start < p->life;) {
		u32 v = gk_load_acquire(p->ask);
		if (v == said) {
			gk_pause(20);
			continue;
		}
		gk_store_release(p->answer, v);
		said = v;
		if (v == PROBE_STOP)
			break;
	}
}
