/* lock.c - the locks of rings, and jumps out of calls that have them. */

#include "library.h"

#include "lock.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <time.h>

#define LOCKS 16    /* of a thread at once: two or a wait, and those of handlers in handlers */
#define PATIENCE 60 /* s, for a thread that has a lock: what reads a file for sendfile(2) may take long */
#define RETRY 20    /* ms, see wait_for */

/* The locks that this thread has, or is about to get, and its waits. Signal handlers read it, so that the count changes last, or first. */
struct held {
	pthread_mutex_t *lock;
	_Atomic uint32_t *flags;
	uint32_t flag;
	const char *frame; /* an address on the stack of the call */
	bool changing;     /* libc changes the lock, and its list of those that this thread has */
	void (*undo)(void *); /* NULL: it is a lock, else a wait */
	void *of;
};

#define OF_THREAD static __thread __attribute__((tls_model("initial-exec")))
OF_THREAD struct held held[LOCKS];
OF_THREAD unsigned locks;

/*
 * Robust, because a process that shares the socket may be killed with the lock: the next one gets EOWNERDEAD and repairs the indexes.
 * Error checking, because a signal handler may call recv(2) in the middle of one: EDEADLK instead of waiting for its own thread.
 */
void lock_make(pthread_mutex_t *lock)
{
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(lock, &a);
	pthread_mutexattr_destroy(&a);
}

/*
 * wait_for waits for a lock that another thread has, and tries again every RETRY: a process that is killed after it was woken,
 * and before it has the lock, leaves the others asleep if a third has taken it meanwhile: that one knows of no waiter.
 */
static int wait_for(pthread_mutex_t *lock)
{
	struct timespec end;
	int e = ETIMEDOUT;
	clock_gettime(CLOCK_MONOTONIC, &end);
	for (int tries = PATIENCE * 1000 / RETRY; tries > 0 && e == ETIMEDOUT; tries--) {
		end.tv_nsec += RETRY * 1000000;
		if (end.tv_nsec >= 1000000000) {
			end.tv_sec++;
			end.tv_nsec -= 1000000000;
		}
		e = pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &end);
	}
	return e;
}

/*
 * lock_take enters the lock before it takes it, and lock_give removes it after: a jump out of a handler in between finds an entry too many
 * rather than one too few, and changing marks libc's state of the lock as unknown. The fences are for the compiler alone, as a
 * handler runs on the same thread.
 */
int lock_take(pthread_mutex_t *lock, _Atomic uint32_t *flags, uint32_t flag)
{
	if (locks == LOCKS)
		return EDEADLK;
	struct held *h = &held[locks];
	*h = (struct held){.lock = lock, .flags = flags, .flag = flag, .frame = __builtin_frame_address(0), .changing = true};
	atomic_signal_fence(memory_order_seq_cst);
	locks++;
	int e = pthread_mutex_trylock(lock);
	if (e == EBUSY)
		e = wait_for(lock);
	if (e == EOWNERDEAD && pthread_mutex_consistent(lock) != 0)
		e = EDEADLK;
	h->changing = false;
	if (e != 0 && e != EOWNERDEAD)
		locks--;
	return e;
}

void lock_give(pthread_mutex_t *lock)
{
	held[locks - 1].changing = true;
	atomic_signal_fence(memory_order_seq_cst);
	pthread_mutex_unlock(lock);
	atomic_signal_fence(memory_order_seq_cst);
	locks--; /* they are given in the opposite order */
}

/* A wait beyond LOCKS has no entry, and does not end the last one. */
OF_THREAD unsigned beyond;

void wait_begin(void (*undo)(void *), void *of)
{
	if (locks == LOCKS) {
		beyond++;
		return;
	}
	held[locks] = (struct held){.frame = __builtin_frame_address(0), .undo = undo, .of = of};
	atomic_signal_fence(memory_order_seq_cst);
	locks++;
}

void wait_end(void)
{
	if (beyond > 0)
		beyond--;
	else
		locks--;
}

static bool within(const void *p, const stack_t *s)
{
	return (s->ss_flags & SS_ONSTACK) != 0 && (uintptr_t)p - (uintptr_t)s->ss_sp < s->ss_size;
}

/* stays reports whether a jump ends in the signal handler: what it jumps to is on the handler's stack. The call goes on then. */
static bool stays(const void *env, const char *frame)
{
	const char *here = __builtin_frame_address(0);
	stack_t own;
	if (sigaltstack(NULL, &own) == 0 && within(here, &own) && !within(frame, &own))
		return within(env, &own);
	return (const char *)env > here && (const char *)env < frame;
}

/*
 * leave ends the waits of calls that a jump leaves, and gives back their locks. Without that the next thread would wait for PATIENCE, each time.
 * That remains where a handler jumps out of libc's own work on a lock.
 */
static void leave(const void *env)
{
	while (locks > 0 && !stays(env, held[locks - 1].frame)) {
		struct held h = held[locks - 1];
		beyond = 0; /* those are of calls within */
		if (h.flags != NULL)
			atomic_fetch_or(h.flags, h.flag);
		if (h.undo != NULL) {
			locks--;
			h.undo(h.of);
		} else if (h.changing)
			locks--;
		else
			lock_give(h.lock);
	}
}

typedef void jump(struct __jmp_buf_tag *, int);
static jump *next_longjmp, *next_siglongjmp, *next_checked;

static jump *found(const char *name)
{
	jump *f;
	void *at = dlsym(RTLD_NEXT, name);
	memcpy(&f, &at, sizeof f);
	return f;
}

/* A handler that jumps cannot look them up. */
__attribute__((constructor)) static void find_jumps(void)
{
	next_longjmp = found("longjmp");
	next_siglongjmp = found("siglongjmp");
	next_checked = found("__longjmp_chk");
}

#define JUMP(name, next)                                                                                              \
	INTERPOSED __attribute__((noreturn)) void name(struct __jmp_buf_tag env[1], int value);                       \
	void name(struct __jmp_buf_tag env[1], int value)                                                             \
	{                                                                                                             \
		leave(env);                                                                                           \
		if (next == NULL) /* before the constructors */                                                       \
			find_jumps();                                                                                 \
		next(env, value);                                                                                     \
		__builtin_unreachable();                                                                              \
	}

JUMP(longjmp, next_longjmp)
JUMP(_longjmp, next_longjmp)
JUMP(siglongjmp, next_siglongjmp)
JUMP(__longjmp_chk, next_checked)
