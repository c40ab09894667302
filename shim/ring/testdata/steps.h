/* steps.h - each access to a shared word is a step, before which the other end may run (interleave.c). It is included before all else. */
#ifndef MILLRACE_TEST_STEPS_H
#define MILLRACE_TEST_STEPS_H

#include <stdatomic.h>

void step(void);

#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#undef atomic_fetch_add
#undef atomic_fetch_or
#undef atomic_fetch_and
#undef atomic_compare_exchange_strong
#define atomic_load(p) (step(), atomic_load_explicit(p, memory_order_seq_cst))
#define atomic_store(p, v) (step(), atomic_store_explicit(p, v, memory_order_seq_cst))
#define atomic_exchange(p, v) (step(), atomic_exchange_explicit(p, v, memory_order_seq_cst))
#define atomic_fetch_add(p, v) (step(), atomic_fetch_add_explicit(p, v, memory_order_seq_cst))
#define atomic_fetch_or(p, v) (step(), atomic_fetch_or_explicit(p, v, memory_order_seq_cst))
#define atomic_fetch_and(p, v) (step(), atomic_fetch_and_explicit(p, v, memory_order_seq_cst))
#define atomic_compare_exchange_strong(p, e, v) \
	(step(), atomic_compare_exchange_strong_explicit(p, e, v, memory_order_seq_cst, memory_order_seq_cst))

#endif
