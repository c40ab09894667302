//go:build ignore

/* The fibers behind host.h. gk_run_block runs one block of a kernel to its end, on the thread that
 * calls it; blocks may run on several threads at once. */
#include "host_run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include "gk.h"

thread_local struct gk_here gk_here;

namespace {

const size_t stack_size = 64 << 10;
const u32 max_threads = 1024;
const u32 max_warps = max_threads / GK_WARP;

/* meeting counts who has come to a collective. */
struct meeting {
	u32 here, round;
};

#ifdef __x86_64__

/* context is a stack at rest: the registers that a callee keeps lie on it (System V ABI 3.2.1). Kernels change neither
 * the signal mask nor the modes of the FPU, so neither is saved: swapcontext's system call for the mask would be
 * nearly all that a switch costs. */
struct context {
	void **sp;
};

extern "C" void gk_host_switch(context *from, const context *to);
__asm__(".text\n"
	".p2align 4\n"
	".globl gk_host_switch\n"
	".hidden gk_host_switch\n"
	".type gk_host_switch, @function\n"
	"gk_host_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq (%rsi), %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size gk_host_switch, .-gk_host_switch\n");

/* make_context has the first switch to c pop six registers and return into f, whose own return address is 0: f never
 * returns. At its entry the stack is 8 below a multiple of 16, as behind a call. */
void make_context(context *c, u8 *stack, size_t size, void (*f)(void))
{
	c->sp = (void **)(stack + size) - 8;
	memset(c->sp, 0, 8 * sizeof *c->sp);
	c->sp[6] = (void *)f;
}

#else

typedef ucontext_t context;

void gk_host_switch(context *from, const context *to) { swapcontext(from, to); }

void make_context(context *c, u8 *stack, size_t size, void (*f)(void))
{
	getcontext(c);
	c->uc_stack.ss_sp = stack;
	c->uc_stack.ss_size = size;
	makecontext(c, f, 0);
}

#endif

struct fiber {
	context ctx;
	bool done;
};

struct runner {
	gk_kernel kernel;
	const void *params;
	struct gk_here place;
	context home;
	u32 now;
	bool rests; /* a fiber waits for somebody outside of the block */
	meeting block, warp[max_warps];
	u64 value[max_warps][2][GK_WARP]; /* by the round's last bit: a lane may read while others write */
	fiber *fibers;
	u8 *stacks;
};

thread_local runner *run;

void enter(void)
{
	run->kernel(run->params);
	run->fibers[run->now].done = true;
	gk_host_switch(&run->fibers[run->now].ctx, &run->home);
}

void resume(u32 i)
{
	run->now = i;
	gk_here = run->place;
	gk_here.thread = i;
	gk_host_switch(&run->home, &run->fibers[i].ctx);
}

void meet(meeting *m, u32 size)
{
	u32 round = m->round;
	if (++m->here == size) {
		m->here = 0;
		m->round++;
		return;
	}
	while (m->round == round)
		gk_yield();
}

/* nap leaves the processor to those whom a block waits for. */
void nap(void)
{
	struct timespec t = {0, 5000};
	nanosleep(&t, nullptr);
}

struct launch {
	gk_kernel kernel;
	const void *params;
	u32 block, grid, block_size;
	size_t dynamic_shared;
};

void *run_launch(void *arg)
{
	launch *l = (launch *)arg;
	gk_run_block(l->kernel, l->params, l->block, l->grid, l->block_size, l->dynamic_shared);
	return nullptr;
}

} // namespace

extern "C" {

/* gk_stopped, when not 0, ends every block at its next round of fibers, where it is: a device that is lost. */
uint32_t gk_stopped;

void gk_yield(void) { gk_host_switch(&run->fibers[run->now].ctx, &run->home); }

void gk_rest(void)
{
	run->rests = true;
	gk_yield();
}

void gk_meet_block(void) { meet(&run->block, run->place.block_size); }

const u64 *gk_meet_warp(u64 v)
{
	u32 warp = gk_here.thread / GK_WARP;
	meeting *m = &run->warp[warp];
	u64 *values = run->value[warp][m->round & 1];
	values[gk_lane()] = v;
	meet(m, gk_min(GK_WARP, run->place.block_size - warp * GK_WARP));
	return values;
}

/* shared_memory returns dynamic shared memory that holds anything, as that of a device does, and a guard behind
 * it; shared_check ends the program where the guard was written to. */
enum { guard_size = 256, guard_byte = 0xa5 };

static u8 *shared_memory(size_t size)
{
	u8 *mem = (u8 *)aligned_alloc(128, (size + guard_size + 127) / 128 * 128);
	if (!mem)
		abort();
	memset(mem, guard_byte, size + guard_size);
	return mem;
}

static void shared_check(const u8 *mem, size_t size)
{
	for (size_t i = 0; i < guard_size; i++) {
		if (mem[size + i] == guard_byte)
			continue;
		fprintf(stderr, "the kernel wrote %zu bytes behind its %zu bytes of shared memory\n", i, size);
		abort();
	}
}

void gk_run_block(gk_kernel kernel, const void *params, u32 block, u32 grid, u32 block_size, size_t dynamic_shared)
{
	if (block_size == 0 || block_size > max_threads)
		abort();
	runner r = {};
	r.kernel = kernel;
	r.params = params;
	r.place.block = block;
	r.place.grid = grid;
	r.place.block_size = block_size;
	r.place.dynamic_shared = shared_memory(dynamic_shared);
	r.fibers = new fiber[block_size]();
	size_t all = stack_size * block_size;
	r.stacks = (u8 *)mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r.stacks == MAP_FAILED)
		abort();
	run = &r;
	for (u32 i = 0; i < block_size; i++)
		make_context(&r.fibers[i].ctx, r.stacks + i * stack_size, stack_size, enter);
	for (bool left = true; left && !__atomic_load_n(&gk_stopped, __ATOMIC_RELAXED);) {
		left = false;
		for (u32 i = 0; i < block_size; i++) {
			if (r.fibers[i].done)
				continue;
			resume(i);
			left = left || !r.fibers[i].done;
		}
		if (r.rests)
			nap();
		r.rests = false;
	}
	run = nullptr;
	munmap(r.stacks, all);
	shared_check(r.place.dynamic_shared, dynamic_shared);
	free(r.place.dynamic_shared);
	delete[] r.fibers;
}

/* gk_run runs a whole grid, one block after the other: not for kernels whose blocks wait for each
 * other. */
void gk_run(gk_kernel kernel, const void *params, u32 grid, u32 block_size, size_t dynamic_shared)
{
	for (u32 i = 0; i < grid; i++)
		gk_run_block(kernel, params, i, grid, block_size, dynamic_shared);
}

void gk_run_at_once(gk_kernel kernel, const void *params, u32 grid, u32 block_size, size_t dynamic_shared)
{
	pthread_t *threads = new pthread_t[grid];
	launch *launches = new launch[grid];
	for (u32 i = 0; i < grid; i++) {
		launches[i] = launch{kernel, params, i, grid, block_size, dynamic_shared};
		if (pthread_create(&threads[i], nullptr, run_launch, &launches[i]) != 0)
			abort();
	}
	for (u32 i = 0; i < grid; i++)
		pthread_join(threads[i], nullptr);
	delete[] threads;
	delete[] launches;
}

} /* extern "C" */
