/*
 * lock.h - the locks of rings. Threads and processes that share a socket share them, and a thread may lose one in the middle of a
 * call: it is killed, or a signal handler leaves the call by siglongjmp(3). Indexes are stored last, so that nothing is half done.
 */
#ifndef MILLRACE_SHIM_LOCK_H
#define MILLRACE_SHIM_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* lock_make begins a lock that processes share. */
void lock_make(pthread_mutex_t *lock);

/*
 * lock_take returns 0 or an errno: EDEADLK is that this thread has it, and this is a signal handler in the middle of a call, and
 * ETIMEDOUT that another has had it for a minute. EOWNERDEAD is that who had it was killed: the lock is taken. One that is left by
 * a jump sets flag in flags, unless that is NULL.
 */
int lock_take(pthread_mutex_t *lock, _Atomic uint32_t *flags, uint32_t flag);
void lock_give(pthread_mutex_t *lock);

/*
 * wait_begin says that the caller waits from now on, and that undo has to be called with of if a jump leaves the wait. undo is called
 * in the signal handler. wait_end is the end of the wait. Locks that are taken meanwhile are given back before.
 */
void wait_begin(void (*undo)(void *), void *of);
void wait_end(void);

#endif
