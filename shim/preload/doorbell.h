/*
 * doorbell.h - what the parts of direct rings (direct.c, directread.c, directwrite.c, directleave.c) share.
 *
 * Order of the fields that both programs write: a producer stores tail and then loads notifier, a consumer stores notifier and then loads
 * tail, all of them sequentially consistent. So at least one of the two sees the other. TestDoorbellModel of shim/ring tries all
 * interleavings.
 */
#ifndef MILLRACE_SHIM_DOORBELL_H
#define MILLRACE_SHIM_DOORBELL_H

#include "direct.h"

#include <poll.h>

#define DIRECT_TRIES 16          /* a correct peer changes a word a few times meanwhile; one that goes on is not waited for */
#define DIRECT_SLEEP 1000000000  /* ns of sleep by futex(2), before the socket tells more: the node wakes us when the other has ended */
#define DIRECT_PAUSE 10000000    /* ns */
#define DIRECT_FILL 16384        /* a quarter of the socket's send buffer */
#define DIRECT_DOORBELLS 0x40000 /* more than may be in a socket */

/* flags of a side */
enum {
	SIDE_NONBLOCKING = 1,
	SIDE_TIMED = 2,  /* SO_RCVTIMEO or SO_SNDTIMEO was set: the socket waits */
	SIDE_SHUT = 4,   /* shutdown(SHUT_WR) */
	SIDE_BROKEN = 8, /* the other has broken the protocol */
	SIDE_RESET = 16, /* ECONNRESET was reported */
	SIDE_ENDED = 32, /* the other has closed its socket: no byte is for it any more */
	SIDE_LATE = 64,  /* and had read all before: what was written since is lost, but makes that no reset */
	SIDE_LEFT_SEND = 128, /* a jump has left a call that had the lock */
	SIDE_LEFT_RECEIVE = 256,
};

static inline struct direct_direction *incoming(const struct rings *r)
{
	return &r->direct->direction[1 - r->number];
}

static inline struct direct_direction *outgoing(const struct rings *r)
{
	return &r->direct->direction[r->number];
}

static inline uint32_t state_of(uint64_t notifier)
{
	return (uint8_t)notifier;
}

static inline uint32_t count_of(uint64_t notifier)
{
	return (uint32_t)(notifier >> 32);
}

/* with_state is notifier with the state to, and n more bytes counted. */
static inline uint64_t with_state(uint64_t notifier, uint32_t to, uint32_t n)
{
	return ((notifier >> 32) + n) << 32 | ((uint32_t)notifier & ~0xffu) | to;
}

/* change_notifier sets the state and counts n more bytes, unless the notifier is not *notifier any more: then it loads that. */
static inline bool change_notifier(struct direct_direction *d, uint64_t *notifier, uint32_t to, uint32_t n)
{
	return atomic_compare_exchange_strong(&d->notifier, notifier, with_state(*notifier, to, n));
}

/* armed is notifier with the state DIRECT_ARMED, unlike any before. */
static inline uint64_t armed(uint64_t notifier)
{
	return with_state((notifier & ~0xffffffffull) | (uint32_t)(notifier + 0x100), DIRECT_ARMED, 0);
}

/* state_word is the half of a notifier that futex(2) looks at. */
static inline _Atomic uint32_t *state_word(struct direct_direction *d)
{
	return (_Atomic uint32_t *)&d->notifier + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

static inline bool by_socket(const struct direct_direction *d)
{
	return ((atomic_load(&d->tail) | atomic_load(&d->head)) & DIRECT_LEFT) != 0;
}

/* gave_up reports whether we write to the socket: the ring to the other is not used any more. */
static inline bool gave_up(const struct rings *r)
{
	return r->side->back != 0 || (atomic_load(&outgoing(r)->tail) & DIRECT_LEFT) != 0;
}

/* is_asked reports whether the other wants to have in the socket what it has not read. */
static inline bool is_asked(const struct rings *r)
{
	return atomic_load(&outgoing(r)->asked) == 1;
}

/* may_have_ended reports whether the socket has to be looked at before a sleep that is not its own. */
static inline bool may_have_ended(const struct rings *r)
{
	return atomic_load(&r->direct->ended) != 0 || atomic_load(&incoming(r)->closes) != r->side->closes;
}

/* pieces returns the n bytes of a ring from index at on. */
static inline void pieces(const struct rings *r, int direction, uint32_t at, uint32_t n, struct iovec to[2])
{
	uint32_t from = at & (r->size - 1), first = n < r->size - from ? n : r->size - from;
	to[0] = (struct iovec){r->data[direction] + from, first};
	to[1] = (struct iovec){r->data[direction], n - first};
}

/* blocks reports whether a call on our socket waits. */
static inline bool blocks(const struct rings *r, int flags)
{
	return (flags & MSG_DONTWAIT) == 0 && (atomic_load(&r->side->flags) & SIDE_NONBLOCKING) == 0;
}

/* hung_up reports whether the other has closed its socket. */
static inline bool hung_up(int fd)
{
	struct pollfd p = {.fd = fd};
	struct timespec none = {0, 0};
	return KERNEL(ppoll, &p, 1, &none, NULL, 0) == 1 && (p.revents & POLLHUP) != 0;
}

/* Locks of a side. Who was killed with one, or has left the call by a jump, has published its index or not: the page says which. */
bool direct_lock_send(struct rings *r);
bool direct_lock_receive(struct rings *r, int fd);

static inline void direct_unlock(pthread_mutex_t *lock)
{
	lock_give(lock);
}

/* direct_fail ends a connection whose other program breaks the protocol. The result is -1, with ECONNRESET. */
int direct_fail(struct rings *r, int fd);

/* direct_used sets n to what the ring to us has. False is that the other says what cannot be. */
bool direct_used(const struct rings *r, uint32_t *n);

/*
 * direct_space returns how much of the ring to the other is free, at least, and exactly if that is less than n: then its index is
 * looked at. -1 is that it says what cannot be. The send lock is held.
 */
long direct_space(struct rings *r, size_t n);

/*
 * direct_free tells a producer that waits for space to go on, and keeps n doorbell bytes in the socket. The receive lock is held.
 */
void direct_free(struct rings *r, int fd, uint32_t keep);

/* direct_drain takes up to n doorbell bytes out of the socket. The receive lock is held. */
void direct_drain(struct rings *r, int fd, uint32_t n);

/*
 * direct_strip takes out the doorbell bytes that are before those of the stream. 1 is that this is done, 0 that some are on their
 * way. The receive lock is held, and the direction goes by the socket.
 */
int direct_strip(struct rings *r, int fd);

/* direct_return puts what the other has not read into the socket, and ends the use of the ring to it. The send lock is held. */
int direct_return(struct rings *r, int fd);

/* direct_asked does so where the other has asked for it. No lock is held. */
void direct_asked(struct rings *r, int fd);

/* direct_silence ends the doorbells of a direction: what is counted now is all. */
void direct_silence(struct direct_direction *d);

/*
 * direct_announce wakes the consumer of the ring from us, as it wishes. It need not be woken where it has read all, unless it is
 * for another reason. -1 is that the other has closed its socket.
 */
int direct_announce(struct rings *r, int fd, bool other);

/* direct_write writes n doorbell bytes that are counted already. */
int direct_write(struct rings *r, int fd, uint32_t n);

/* sleep_on waits while *word is value, at most for ns. -1 is EINTR: a signal whose handler has no SA_RESTART. */
int sleep_on(_Atomic uint32_t *word, uint32_t value, uint32_t ns);
void wake_all(_Atomic uint32_t *word);

#endif
