/* The dialect that every kernel is written in. One source compiles twice: by clang as CUDA, to the PTX
 * that the driver runs, and by clang++ as C++, to the library that tests run on the CPU (host.h).
 *
 * A kernel takes one struct by value, as a pointer p, and is run by every thread of a grid:
 *
 *	GK_KERNEL(gk_example, struct gk_example, 256) { u32 i = gk_global_thread(); ... }
 *
 * GK_KERNEL_BLOCKS also says how many blocks a multiprocessor is to run at once, which bounds the registers.
 *
 * Collectives (gk_ballot, gk_shfl, gk_warp_sync, gk_block_sync) must be reached by all threads of the
 * warp or block, and no thread may leave the kernel before the last of them. A spin on a word that
 * another thread writes must call gk_pause in its loop.
 *
 * Memory that somebody else may write while the kernel runs (frames, descriptors, doorbells) is read by
 * gk_load_* only: the compiler may route plain reads through const __restrict__ pointers by the
 * non-coherent cache (ld.global.nc), which a persistent kernel never sees refreshed. The dialect
 * therefore never writes __restrict__. */
#ifndef MILLRACE_GK_H
#define MILLRACE_GK_H

#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;

/* Sixteen bytes, the widest load there is. */
struct gk_quad {
	u32 w[4];
};

enum { GK_WARP = 32 };

#ifdef GK_HOST
#include "host.h"
#else

#define GK_FN static inline __attribute__((device, always_inline))
#define GK_SLOW static __attribute__((device, noinline)) /* paths that few packets take */
#define GK_CONST static __attribute__((constant))        /* small tables, known when compiled */
#define GK_SHARED static __attribute__((shared))         /* memory of the block */
#define GK_KERNEL_(name, P, ...)                                                                      \
	GK_FN void name##_body(const P *p);                                                           \
	extern "C" __attribute__((global, launch_bounds(__VA_ARGS__))) void name(const P gk_p)        \
	{                                                                                             \
		name##_body(&gk_p);                                                                   \
	}                                                                                             \
	GK_FN void name##_body(const P *p)
#define GK_KERNEL(name, P, threads) GK_KERNEL_(name, P, threads)
#define GK_KERNEL_BLOCKS(name, P, threads, blocks) GK_KERNEL_(name, P, threads, blocks)

/* Where this thread is. */
GK_FN u32 gk_thread(void) { return __nvvm_read_ptx_sreg_tid_x(); }
GK_FN u32 gk_block(void) { return __nvvm_read_ptx_sreg_ctaid_x(); }
GK_FN u32 gk_block_size(void) { return __nvvm_read_ptx_sreg_ntid_x(); }
GK_FN u32 gk_grid(void) { return __nvvm_read_ptx_sreg_nctaid_x(); } /* blocks */
GK_FN u32 gk_lane(void) { return gk_thread() & (GK_WARP - 1); }

/* Collectives. */
GK_FN void gk_block_sync(void) { __nvvm_bar_sync(0); }
GK_FN void gk_warp_sync(void) { __nvvm_bar_warp_sync(~0u); }
GK_FN u32 gk_ballot(int pred) { return __nvvm_vote_ballot_sync(~0u, pred); }
GK_FN u32 gk_shfl(u32 v, u32 lane) { return (u32)__nvvm_shfl_sync_idx_i32(~0u, (int)v, (int)lane, 31); }

/* Arithmetic. */
GK_FN u32 gk_popc(u32 v) { return (u32)__builtin_popcount(v); }
GK_FN u32 gk_popcll(u64 v) { return (u32)__builtin_popcountll(v); }
GK_FN u32 gk_ctz(u32 v) { return (u32)__builtin_ctz(v); }     /* v is not 0 */
GK_FN u32 gk_ctzll(u64 v) { return (u32)__builtin_ctzll(v); } /* v is not 0 */
GK_FN u32 gk_clz(u32 v) { return (u32)__builtin_clz(v); }     /* v is not 0 */
GK_FN u32 gk_clzll(u64 v) { return (u32)__builtin_clzll(v); } /* v is not 0 */
/* gk_permute picks four of the eight bytes of a (0 to 3) and b (4 to 7), by the half bytes of sel. */
GK_FN u32 gk_permute(u32 a, u32 b, u32 sel) { return __nvvm_prmt(a, b, sel); }

GK_FN u32 gk_rotate(u32 v, u32 n) { return __builtin_rotateright32(v, n); } /* to the right, by n modulo 32 */

/* gk_funnel shifts hi:lo to the right by n modulo 32 and returns the lower half. */
GK_FN u32 gk_funnel(u32 lo, u32 hi, u32 n)
{
	u32 v;
	__asm__("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(lo), "r"(hi), "r"(n));
	return v;
}

/* Reads of memory that others write: never cached in L1, never by the non-coherent path. */
GK_FN u32 gk_load_u8(const void *a)
{
	u32 v;
	__asm__ volatile("ld.relaxed.sys.u8 %0, [%1];" : "=r"(v) : "l"(a) : "memory");
	return v;
}

GK_FN u32 gk_load_u32(const void *a)
{
	u32 v;
	__asm__ volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(v) : "l"(a) : "memory");
	return v;
}

GK_FN u64 gk_load_u64(const void *a)
{
	u64 v;
	__asm__ volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(v) : "l"(a) : "memory");
	return v;
}

/* gk_load_quad reads sixteen bytes on a boundary of sixteen. Not volatile to the compiler, so that
 * several can be under way at once; gk_fresh keeps it from reusing what it read before. */
GK_FN struct gk_quad gk_load_quad(const void *a)
{
	struct gk_quad q;
	__asm__ volatile("ld.relaxed.sys.v4.u32 {%0, %1, %2, %3}, [%4];"
			 : "=r"(q.w[0]), "=r"(q.w[1]), "=r"(q.w[2]), "=r"(q.w[3])
			 : "l"(a));
	return q;
}

/* gk_fresh returns a, and the compiler cannot know that it does: reads through what it returns happen. */
GK_FN const void *gk_fresh(const void *a)
{
	__asm__ volatile("" : "+l"(a) : : "memory");
	return a;
}

/* gk_table_quad reads sixteen bytes on a boundary of sixteen of a table, which nobody writes while the
 * kernel runs. Volatile, so that the compiler moves no half of an entry behind a branch: that would be
 * one more trip to the cache. */
GK_FN struct gk_quad gk_table_quad(const void *a)
{
	struct gk_quad q;
	__asm__ volatile("ld.v4.u32 {%0, %1, %2, %3}, [%4];"
			 : "=r"(q.w[0]), "=r"(q.w[1]), "=r"(q.w[2]), "=r"(q.w[3])
			 : "l"(a));
	return q;
}

GK_FN void gk_store_quad(void *a, struct gk_quad q)
{
	__asm__ volatile("st.relaxed.sys.v4.u32 [%0], {%1, %2, %3, %4};"
			 :
			 : "l"(a), "r"(q.w[0]), "r"(q.w[1]), "r"(q.w[2]), "r"(q.w[3])
			 : "memory");
}

GK_FN void gk_store_u64(void *a, u64 v) { __asm__ volatile("st.relaxed.sys.u64 [%0], %1;" : : "l"(a), "l"(v) : "memory"); }

GK_FN void gk_store_u8(void *a, u32 v)
{
	__asm__ volatile("st.relaxed.sys.u8 [%0], %1;" : : "l"(a), "r"(v) : "memory");
}

/* Doorbells. */
GK_FN u32 gk_load_acquire(const u32 *a)
{
	u32 v;
	__asm__ volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(v) : "l"(a) : "memory");
	return v;
}

GK_FN void gk_store_release(u32 *a, u32 v)
{
	__asm__ volatile("st.release.sys.u32 [%0], %1;" : : "l"(a), "r"(v) : "memory");
}

GK_FN void gk_fence_system(void) { __nvvm_membar_sys(); }
GK_FN void gk_fence_device(void) { __nvvm_membar_gl(); }
/* gk_fence_acquire follows a relaxed read of a doorbell: what was written before the doorbell is seen by all
 * reads that follow, also by plain ones of memory whose old contents lie in a cache. */
GK_FN void gk_fence_acquire(void) { __asm__ volatile("fence.acq_rel.sys;" : : : "memory"); }
GK_FN void gk_pause(u32 ns) { __asm__ volatile("nanosleep.u32 %0;" : : "r"(ns) : "memory"); }

/* gk_clock returns nanoseconds; it advances in steps of up to a microsecond. */
GK_FN u64 gk_clock(void)
{
	u64 v;
	__asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
	return v;
}

/* Atomics, at the scope of the device. */
GK_FN u32 gk_atomic_add(u32 *a, u32 v) { return (u32)__nvvm_atom_add_gen_i((int *)a, (int)v); }
GK_FN u32 gk_atomic_or(u32 *a, u32 v) { return (u32)__nvvm_atom_or_gen_i((int *)a, (int)v); }
GK_FN u64 gk_atomic_add_u64(u64 *a, u64 v) { return (u64)__nvvm_atom_add_gen_ll((long long *)a, (long long)v); }
GK_FN u32 gk_atomic_cas(u32 *a, u32 old, u32 v)
{
	return (u32)__nvvm_atom_cas_gen_i((int *)a, (int)old, (int)v);
}

/* gk_race marks where another thread may come first and make a difference; on the CPU one does, at random. */
GK_FN void gk_race(void) {}

/* gk_dynamic_shared is the memory of the block whose size the launch gives. */
extern __attribute__((shared)) u8 gk_dynamic[];
GK_FN u8 *gk_dynamic_shared(void) { return gk_dynamic; }

#endif /* GK_HOST */

/* The 64-bit words of a quad. */
GK_FN u64 gk_low(struct gk_quad q) { return (u64)q.w[1] << 32 | q.w[0]; }
GK_FN u64 gk_high(struct gk_quad q) { return (u64)q.w[3] << 32 | q.w[2]; }

GK_FN u32 gk_global_thread(void) { return gk_block() * gk_block_size() + gk_thread(); }
GK_FN u32 gk_threads(void) { return gk_grid() * gk_block_size(); }
GK_FN u32 gk_min(u32 a, u32 b) { return a < b ? a : b; }
GK_FN u32 gk_max(u32 a, u32 b) { return a > b ? a : b; }

#endif
