/* gk.h for the CPU: a thread of a kernel is a fiber, a block runs on one thread of the process, and a
 * collective lets the other fibers of the block run until all have come. Slow and exact: it is for tests.
 * host.cc runs the fibers. */
#ifndef MILLRACE_GK_HOST_H
#define MILLRACE_GK_HOST_H

#include <string.h>
#include <time.h>

#define GK_FN static inline
#define GK_SLOW static
#define GK_CONST static const
#define GK_SHARED static thread_local
#define GK_KERNEL_BLOCKS(name, P, threads, blocks) GK_KERNEL(name, P, threads)
#define GK_KERNEL(name, P, threads)                                                                   \
	static void name##_body(const P *p);                                                          \
	extern "C" void name(const void *p) { name##_body((const P *)p); }                            \
	static void name##_body(const P *p)

/* The thread of the kernel that runs now. */
struct gk_here {
	u32 thread, block, block_size, grid;
	u8 *dynamic_shared;
};
extern thread_local struct gk_here gk_here;

extern "C" {
/* gk_meet waits until all threads of the warp (or of the block) have called it, and returns where the
 * values that they brought lie: one for each lane. */
const u64 *gk_meet_warp(u64 v);
void gk_meet_block(void);
void gk_yield(void);
void gk_rest(void); /* gk_yield, for a fiber that waits for another block or for the host */
}

GK_FN u32 gk_thread(void) { return gk_here.thread; }
GK_FN u32 gk_block(void) { return gk_here.block; }
GK_FN u32 gk_block_size(void) { return gk_here.block_size; }
GK_FN u32 gk_grid(void) { return gk_here.grid; }
GK_FN u32 gk_lane(void) { return gk_here.thread & (GK_WARP - 1); }

GK_FN void gk_block_sync(void) { gk_meet_block(); }
GK_FN void gk_warp_sync(void) { gk_meet_warp(0); }
GK_FN u32 gk_shfl(u32 v, u32 lane) { return (u32)gk_meet_warp(v)[lane & (GK_WARP - 1)]; }
GK_FN u32 gk_ballot(int pred)
{
	const u64 *all = gk_meet_warp(pred != 0);
	u32 v = 0;
	for (u32 i = 0; i < GK_WARP; i++)
		v |= (u32)all[i] << i;
	return v;
}

GK_FN u32 gk_popc(u32 v) { return (u32)__builtin_popcount(v); }
GK_FN u32 gk_popcll(u64 v) { return (u32)__builtin_popcountll(v); }
GK_FN u32 gk_ctz(u32 v) { return (u32)__builtin_ctz(v); }
GK_FN u32 gk_ctzll(u64 v) { return (u32)__builtin_ctzll(v); }
GK_FN u32 gk_clz(u32 v) { return (u32)__builtin_clz(v); }
GK_FN u32 gk_clzll(u64 v) { return (u32)__builtin_clzll(v); }
GK_FN u32 gk_permute(u32 a, u32 b, u32 sel)
{
	u64 all = (u64)b << 32 | a;
	u32 v = 0;
	for (u32 i = 0; i < 4; i++)
		v |= (u32)(all >> (sel >> 4 * i & 7) * 8 & 255) << 8 * i;
	return v;
}

GK_FN u32 gk_rotate(u32 v, u32 n) { return __builtin_rotateright32(v, n); }
GK_FN u32 gk_funnel(u32 lo, u32 hi, u32 n) { return (u32)(((u64)hi << 32 | lo) >> (n & 31)); }

GK_FN u32 gk_load_u8(const void *a) { return *(const volatile u8 *)a; }
GK_FN u32 gk_load_u32(const void *a) { return __atomic_load_n((const u32 *)a, __ATOMIC_RELAXED); }
GK_FN u64 gk_load_u64(const void *a) { return __atomic_load_n((const u64 *)a, __ATOMIC_RELAXED); }
GK_FN struct gk_quad gk_load_quad(const void *a)
{
	struct gk_quad q;
	memcpy(&q, __builtin_assume_aligned(a, 16), sizeof q);
	return q;
}
GK_FN const void *gk_fresh(const void *a)
{
	__asm__ volatile("" : "+r"(a) : : "memory");
	return a;
}
GK_FN struct gk_quad gk_table_quad(const void *a) { return gk_load_quad(a); }
GK_FN void gk_store_u8(void *a, u32 v) { *(volatile u8 *)a = (u8)v; }
GK_FN void gk_store_quad(void *a, struct gk_quad q) { memcpy(__builtin_assume_aligned(a, 16), &q, sizeof q); }

GK_FN void gk_store_u64(void *a, u64 v) { __atomic_store_n((u64 *)a, v, __ATOMIC_RELAXED); }

GK_FN u32 gk_load_acquire(const u32 *a) { return __atomic_load_n(a, __ATOMIC_ACQUIRE); }
GK_FN void gk_store_release(u32 *a, u32 v) { __atomic_store_n(a, v, __ATOMIC_RELEASE); }
GK_FN void gk_fence_system(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
GK_FN void gk_fence_device(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
GK_FN void gk_fence_acquire(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
GK_FN void gk_pause(u32 ns)
{
	(void)ns;
	gk_rest();
}
GK_FN void gk_race(void)
{
	static thread_local u32 dice = 1;
	dice = dice * 1664525u + 1013904223u;
	if (dice >> 30 == 0)
		gk_yield();
}
GK_FN u64 gk_clock(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (u64)t.tv_sec * 1000000000u + (u64)t.tv_nsec;
}

GK_FN u32 gk_atomic_add(u32 *a, u32 v) { return __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST); }
GK_FN u32 gk_atomic_or(u32 *a, u32 v) { return __atomic_fetch_or(a, v, __ATOMIC_SEQ_CST); }
GK_FN u64 gk_atomic_add_u64(u64 *a, u64 v) { return __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST); }
GK_FN u32 gk_atomic_cas(u32 *a, u32 old, u32 v)
{
	__atomic_compare_exchange_n(a, &old, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return old;
}

GK_FN u8 *gk_dynamic_shared(void) { return gk_here.dynamic_shared; }

#endif
