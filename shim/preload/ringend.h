/*
 * ringend.h - an end of rings: the words that it shares with the other end, and what is its own.
 *
 * Each word of ring.h has one writer: the producer or the consumer of a direction. An end may be several threads and processes, which
 * have its locks, so changes of its own words are atomic where two of them may meet. The other end may be hostile: indexes are compared
 * with the size of the ring at each use, and loops on its words are bounded (RING_TRIES).
 *
 * Order: a producer stores tail and then loads arm, a consumer stores arm and then loads tail, all of them sequentially consistent. So at
 * least one of the two sees the other, and the same holds for notified and head, for space and head, for gone and tail, and for tail
 * (TAIL_LEFT) and head.
 * TestDoorbellModel and its neighbours of shim/ring try all interleavings.
 */
#ifndef MILLRACE_SHIM_RINGEND_H
#define MILLRACE_SHIM_RINGEND_H

#include "cursor.h"
#include "lock.h"
#include "ring.h"
#include "rings.h"

#include <poll.h>

#define RING_TRIES 16          /* a correct end changes a word a few times meanwhile; one that goes on is not waited for */
#define RING_SLEEP 1000000000  /* ns of sleep by futex(2), before the socket is looked at: the deadline where a wakeup was lost */
#define RING_PAUSE 10000000    /* ns */
#define RING_FILL 16384        /* a quarter of the socket's send buffer (ringSendBuffer of the node) */
#define RING_DOORBELLS 0x40000 /* more than may be in a socket */

/* flags of a side */
enum {
	SIDE_NONBLOCKING = 1,
	SIDE_TIMED = 2,  /* SO_RCVTIMEO or SO_SNDTIMEO was set: the socket waits */
	SIDE_SHUT = 4,   /* shutdown(SHUT_WR) */
	SIDE_BROKEN = 8, /* the other end has broken the protocol */
	SIDE_RESET = 16, /* ECONNRESET was reported */
	SIDE_ENDED = 32, /* the other end has closed its socket: no byte is for it any more */
	SIDE_LATE = 64,  /* and had read all before: what was written since is lost, but makes that no reset */
	SIDE_LEFT_SEND = 128, /* a jump has left a call that had the lock */
	SIDE_LEFT_RECEIVE = 256,
	SIDE_CLOSED = 512,    /* the other end has closed a socket, and may read no more: it is woken in any case */
	SIDE_FINISHED = 1024, /* the socket was shut down behind the last byte (fin) */
};

/* What is an end's own. In the page of ENDS_NODE it is behind the shared words; another program never sees it. */
struct ring_side {
	_Alignas(64) pthread_mutex_t send;
	uint64_t tail; /* as it was published */
	uint64_t seen; /* the last head of the other end that was looked at, and checked */
	uint32_t back; /* 1: what was unread is in the socket, and so is what follows */
	_Alignas(64) pthread_mutex_t receive;
	uint64_t head;
	uint32_t taken;  /* doorbell bytes that were taken out of the socket */
	uint32_t closes; /* of the other end, when the socket was looked at last */
	_Alignas(64) _Atomic uint32_t flags;
	_Atomic int error; /* what the socket had while bytes were in the ring */
};

_Static_assert(sizeof(struct ring_side) <= sizeof((struct ring_page *)0)->own, "side");

/* Where the next bytes are. */
enum carrier { BY_RING, BY_SOCKET, BY_SOCKET_SOON, BY_NOTHING /* the protocol is broken */ };

/* Whether an end may write. */
enum outcome { MAY_SEND, WAITS, MOVED, ENDED, BUSY };

/* How a blocking read waits, before it does by the socket. */
struct plan {
	uint32_t notify; /* SPINNING or ASLEEP */
	bool yields;     /* the other end may be on this CPU */
	uint64_t spin;   /* ns */
};

/* What differs with the other end. The tables are in ringnode.c and ringpeer.c. NULL: there is nothing to do. */
struct tier {
	/* The memory. attach and share report success; refuse returns the number of a socket that goes without rings from its beginning. */
	bool (*attach)(struct rings *r, int fd, bool connects);
	int (*refuse)(struct rings *r, int fd, bool connects);
	bool (*share)(const struct rings *r, struct rings *other);
	void (*unmap)(struct rings *r);

	/* The life of the socket. leave and moved report whether the descriptor is of tier 0. */
	void (*closing)(struct rings *r, int fd);
	int (*shut)(struct rings *r, int fd, int how);
	bool (*leave)(struct rings *r, int fd);
	bool (*moved)(const struct rings *r);

	/* Before each call, without a lock, and while a read waits: does anything but bytes end that? */
	void (*answer)(struct rings *r, int fd);
	bool (*idle)(const struct rings *r);

	/* A read, with the lock: where bytes are, after some were taken. Without: how to wait, how long that took, the end of the stream. */
	enum carrier (*carrier)(struct rings *r, int fd);
	void (*emptied)(struct rings *r, int fd);
	bool (*plan)(struct rings *r, struct plan *p);
	void (*waited)(struct rings *r, uint64_t ns);
	void (*reset)(struct rings *r, int fd);
	ssize_t (*end_of_reading)(struct rings *r, int fd);

	/*
	 * A write, with the lock: may it write; a lock that was left; bytes from before on that the other end takes no more from the ring (0: they
	 * are for the socket, 1: they are in it, -1: an error); bytes that it has not been notified of, as it has closed its socket.
	 */
	enum outcome (*may_send)(struct rings *r);
	void (*recovered)(struct rings *r, int fd);
	int (*refused)(struct rings *r, int fd, uint64_t before);
	int (*unheard)(struct rings *r, uint64_t before);
	ssize_t (*end_of_writing)(struct rings *r, int fd, int flags);

	bool sleeps;        /* the ends sleep by futex(2) */
	unsigned patience;  /* how often a read yields to a doorbell byte that is on its way */
	uint32_t guard;     /* bytes apart, behind those that fill the socket */
};

extern const struct tier node_tier, peer_tier;

static inline struct ring_direction *incoming(const struct rings *r)
{
	return &r->page->direction[1 - r->number];
}

static inline struct ring_direction *outgoing(const struct rings *r)
{
	return &r->page->direction[r->number];
}

/* A wakeup word (arm, notified) has a state in its low byte, an epoch above it, and want or a count in its high half. */
static inline uint64_t wakeup(uint32_t state, uint32_t epoch, uint32_t high)
{
	return (uint64_t)high << RING_HIGH_SHIFT | (epoch & RING_EPOCH_MASK) << RING_EPOCH_SHIFT | state;
}

static inline uint32_t state_of(uint64_t word)
{
	return (uint8_t)word;
}

static inline uint32_t epoch_of(uint64_t word)
{
	return (uint32_t)word >> RING_EPOCH_SHIFT;
}

static inline uint32_t high_of(uint64_t word)
{
	return (uint32_t)(word >> RING_HIGH_SHIFT);
}

/* answer_to returns what the producer has done for the epoch of arm. */
static inline uint32_t answer_to(uint64_t arm, uint64_t notified)
{
	if (state_of(notified) == RING_ANSWER_ENDED)
		return RING_ANSWER_ENDED;
	return epoch_of(arm) == epoch_of(notified) ? state_of(notified) : RING_ANSWER_NONE;
}

/* doorbells returns how many doorbell bytes are in our socket, or on their way. The receive lock is held. */
static inline uint32_t doorbells(const struct rings *r)
{
	return high_of(atomic_load(&incoming(r)->notified)) - r->side->taken;
}

/* notified_word is the half of notified that futex(2) looks at. */
static inline _Atomic uint32_t *notified_word(struct ring_direction *d)
{
	return (_Atomic uint32_t *)&d->notified + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

/* is_asked reports whether the other end wants to have in the socket what it has not read. */
static inline bool is_asked(const struct rings *r)
{
	return atomic_load(&outgoing(r)->gone) == 1 && r->side->back == 0;
}

/* by_socket reports whether the ring to this end is not used any more. */
static inline bool by_socket(const struct rings *r)
{
	return atomic_load(&incoming(r)->gone) == 1 || (atomic_load(&incoming(r)->tail) & RING_TAIL_LEFT) != 0;
}

/* may_have_ended reports whether the socket has to be looked at before a sleep that is not its own. */
static inline bool may_have_ended(const struct rings *r)
{
	return atomic_load(&r->page->ended) != 0 || atomic_load(&incoming(r)->closes) != r->side->closes;
}

/*
 * longest_sleep bounds a sleep beside the socket, in ns. An end counts a close before the kernel makes it, so a thread that has looked at
 * its socket since the count may have been too early: it looks again soon.
 */
static inline uint32_t longest_sleep(const struct rings *r)
{
	return r->side->closes == 0 ? RING_SLEEP : RING_PAUSE;
}

static inline bool has_flag(const struct rings *r, uint32_t flags)
{
	return (atomic_load(&r->side->flags) & flags) != 0;
}

static inline bool blocks(const struct rings *r, int flags)
{
	return (flags & MSG_DONTWAIT) == 0 && !has_flag(r, SIDE_NONBLOCKING);
}

/* hung_up reports whether the other end has closed its socket. */
static inline bool hung_up(int fd)
{
	struct pollfd p = {.fd = fd};
	struct timespec none = {0, 0};
	return KERNEL(ppoll, &p, 1, &none, NULL, 0) == 1 && (p.revents & POLLHUP) != 0;
}

/* busy_poll is how long a blocking read polls before it sleeps, in ns. */
static inline uint64_t busy_poll(void)
{
	return settings()->busy_poll;
}

/* pieces returns the n bytes of a ring from index at on. */
static inline void pieces(const struct rings *r, uint32_t direction, uint64_t at, uint32_t n, struct iovec to[2])
{
	uint32_t from = (uint32_t)at & (r->size - 1), first = n < r->size - from ? n : r->size - from;
	to[0] = (struct iovec){r->data[direction] + from, first};
	to[1] = (struct iovec){r->data[direction], n - first};
}

/*
 * Locks of a side. Who was killed with one, or has left the call by a jump, has published its index or not: the page shows which.
 * False: this is a signal handler, in the middle of a call.
 */
bool ring_lock_send(struct rings *r, int fd);
bool ring_lock_receive(struct rings *r, int fd);

/*
 * ring_end_of_writing is a write that can write nothing, for the reason of cause: that is its errno. Without one, and for EPIPE, it is
 * EPIPE with its signal. The result is -1.
 */
ssize_t ring_end_of_writing(int cause, int flags);

/* ring_end_of_reading is a read behind the last byte: 0, or -1 with cause as its errno. */
static inline ssize_t ring_end_of_reading(int cause)
{
	if (cause != 0)
		errno = cause;
	return cause != 0 ? -1 : 0;
}

/* ring_unmap unmaps the page with the bytes of its rings. */
void ring_unmap(struct rings *r);

/* ring_fail ends a connection whose other end breaks the protocol. The result is -1, with ECONNRESET. */
int ring_fail(struct rings *r, int fd);

/* ring_used sets n to what the ring to this end has. False: the other end has an index that cannot be. */
static inline bool ring_used(const struct rings *r, uint32_t *n)
{
	uint64_t tail = atomic_load(&incoming(r)->tail), used = tail - r->side->head;
	*n = (uint32_t)used;
	if (used <= r->size && atomic_load_explicit(&incoming(r)->gone, memory_order_relaxed) != 1)
		return true;
	*n = 0;
	return used <= r->size || by_socket(r); /* the other end puts it into the socket */
}

/* has_bytes is true of an index that cannot be, too: the call that takes bytes ends the connection. */
static inline bool has_bytes(const struct rings *r)
{
	uint32_t n;
	return !ring_used(r, &n) || n > 0;
}

/*
 * ring_space returns how much of the ring to the other end is free, at least, and exactly if that is less than n: then its index is
 * looked at. -1: it is one that cannot be. The send lock is held.
 */
static inline long ring_space(struct rings *r, size_t n)
{
	struct ring_side *s = r->side;
	uint64_t space = r->size - (s->tail - s->seen);
	if (space >= n)
		return (long)space;
	uint64_t head = atomic_load(&outgoing(r)->head), used = s->tail - head;
	if (used > r->size)
		return -1;
	s->seen = head;
	return (long)(r->size - used);
}

/* ring_arm asks for a doorbell byte with the next bytes. */
void ring_arm(struct ring_direction *d);

/*
 * drain_doorbells takes the doorbell bytes out of the socket, because the ring is empty. False: it is not. What has come since is
 * announced by the byte of before, if there is one, or will be. The receive lock is held.
 */
bool drain_doorbells(struct rings *r, int fd);

/* ring_drain takes up to n doorbell bytes out of the socket, and returns how many. The receive lock is held. */
uint32_t ring_drain(struct rings *r, int fd, uint32_t n);

/* discard_spurious_doorbell takes doorbell bytes whose bytes have been read. No lock is held. */
void discard_spurious_doorbell(struct rings *r, int fd);

/*
 * ring_announce wakes the consumer of the ring from this end, as it wishes. It need not be woken where it has read all, unless it is
 * for another reason. -1: it has closed its socket. The send lock is held.
 */
int ring_announce(struct rings *r, int fd, bool other);

/* ring_doorbell writes a doorbell byte in any case. */
int ring_doorbell(struct rings *r, int fd);

/*
 * ring_fill makes the socket not writable, because the ring is full. The other end drains it when half of the ring is free. -1: it
 * has closed its socket, so that none is freed, and the socket is writable. The send lock is held.
 */
int ring_fill(struct rings *r, int fd);

/* ring_end_doorbells ends the doorbells of the direction from this end: their count is final. The send lock is held. */
void ring_end_doorbells(struct rings *r);

/* ring_wake wakes threads of the other program that sleep by futex(2), so that they look at their socket. */
void ring_wake(struct rings *r);

/* ring_ask_space asks for a wakeup (bit of space) when half of the ring from this end is free. The send lock is held. */
void ring_ask_space(struct ring_direction *d, uint32_t bit);

/*
 * ring_answer_space wakes a producer that waits for space. If that has filled the socket, n doorbell bytes are taken out. The receive
 * lock is held.
 */
void ring_answer_space(struct rings *r, int fd, uint32_t n);

/*
 * ring_lie_down announces that the caller waits beside the socket for want bytes. ring_rest waits for them, as planned, after it; -1 is
 * EINTR.
 */
bool ring_lie_down(struct rings *r, size_t want, const struct plan *p);
int ring_rest(struct rings *r, const struct plan *p);

/* sleep_on waits while *word is value, at most for ns. -1 is EINTR: a signal whose handler has no SA_RESTART. */
int sleep_on(_Atomic uint32_t *word, uint32_t value, uint32_t ns);
void wake_all(_Atomic uint32_t *word);

/*
 * Of another program (ringleave.c). peer_return puts what it has not read into the socket, and ends the use of the ring to it. The send lock is
 * held. peer_refused is called when it may not have known, as it published, that the ring is no longer read.
 */
int peer_return(struct rings *r, int fd);
int peer_refused(struct rings *r, int fd, uint64_t before);
bool peer_leave(struct rings *r, int fd);
int peer_refuse(struct rings *r, int fd, bool connects);

#endif
