/*
 * ringpeer.c - rings between two programs of one host (tier 2), which have an AF_UNIX pair as their socket.
 *
 * The node makes the memory and has no part in what follows. The page can be written by both programs, so neither relies on what it has:
 * each keeps its own indexes and its locks in memory that only processes with its own end share. docs/design/039-direct-rings.md
 * has the reasons.
 */

#include "ringend.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>

#define SIDE_SIZE 4096

static bool peer_attach(struct rings *r, int fd, bool connects)
{
	(void)fd;
	long s = KERNEL(mmap, NULL, SIDE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == -1)
		return false;
	r->side = (struct ring_side *)s;
	r->number = connects ? 0 : 1;
	return true;
}

static bool peer_share(const struct rings *r, struct rings *other)
{
	size_t bytes = RING_HEADER + 2 * (size_t)r->size;
	/* An old size of 0 makes a second mapping of shared pages: mremap(2). */
	long p = KERNEL(mremap, r->page, 0, bytes, MREMAP_MAYMOVE), s = -1;
	if (p != -1)
		s = KERNEL(mremap, r->side, 0, SIDE_SIZE, MREMAP_MAYMOVE);
	if (s == -1) {
		if (p != -1)
			KERNEL(munmap, p, bytes);
		return false;
	}
	other->page = (struct ring_page *)p;
	other->side = (struct ring_side *)s;
	other->number = r->number;
	return true;
}

static void peer_unmap(struct rings *r)
{
	ring_unmap(r);
	KERNEL(munmap, r->side, SIDE_SIZE);
}

/*
 * peer_closing takes out the doorbell bytes that announce nothing, such as that of an end that has left the ring: the kernel makes a close
 * with a byte unread a reset.
 */
static void peer_closing(struct rings *r, int fd)
{
	ring_wake(r);
	if (!ring_lock_receive(r, fd))
		return;
	if (!has_bytes(r) && doorbells(r) != 0)
		ring_drain(r, fd, doorbells(r));
	lock_give(&r->side->receive);
}

/* What exit(3) closes is seen at once. The node reports to the other what _exit(2) and SIGKILL close. */
__attribute__((destructor)) static void wake_at_exit(void)
{
	for (int fd = 0; fd < atomic_load(&rings_numbers); fd++) {
		struct rings *r = rings_hold(fd);
		if (r != NULL && r->tier->closing != NULL)
			r->tier->closing(r, fd);
		if (r != NULL)
			rings_release(r);
	}
}

/* peer_shut ends the direction to the other program: what it has not read goes to the socket first. */
static int peer_shut(struct rings *r, int fd, int how)
{
	if (how == SHUT_RD || !ring_lock_send(r, fd))
		return (int)KERNEL(shutdown, fd, how);
	peer_return(r, fd);
	atomic_fetch_or(&r->side->flags, SIDE_SHUT);
	int result = (int)KERNEL(shutdown, fd, how);
	lock_give(&r->side->send);
	ring_wake(r);
	return result;
}

/* peer_moved is false even where both directions are by the socket: the table is right in any case. */
static bool peer_moved(const struct rings *r)
{
	(void)r;
	return false;
}

/* peer_answer puts what the other program has not read into the socket, where it has asked for that. */
static void peer_answer(struct rings *r, int fd)
{
	if (atomic_load_explicit(&outgoing(r)->gone, memory_order_relaxed) != 1 || r->side->back != 0 || !ring_lock_send(r, fd))
		return;
	int saved = errno;
	peer_return(r, fd);
	lock_give(&r->side->send);
	errno = saved;
}

static bool peer_idle(const struct rings *r)
{
	return !by_socket(r) && !is_asked(r) && !may_have_ended(r);
}

/* is_pending reports whether there are bytes in the ring that the producer has to put into the socket. */
static bool is_pending(const struct rings *r)
{
	uint64_t tail = atomic_load(&incoming(r)->tail);
	return (tail & RING_TAIL_FINAL) == 0 && (tail & RING_INDEX_MASK) != r->side->head;
}

/* is_final reports whether the producer has left the ring as it has to: its doorbells have ended, and its last index is where we are. */
static bool is_final(const struct rings *r)
{
	uint64_t tail = atomic_load(&incoming(r)->tail);
	return (tail & RING_INDEX_MASK) == r->side->head && state_of(atomic_load(&incoming(r)->notified)) == RING_ANSWER_ENDED;
}

/*
 * peer_carrier takes out the doorbell bytes that are before those of the stream, once no more of them can come: they are counted, and the
 * producer has ended them, or has nothing to announce.
 */
static enum carrier peer_carrier(struct rings *r, int fd)
{
	struct ring_direction *d = incoming(r);
	if (!by_socket(r))
		return BY_RING;
	if (is_pending(r)) {
		bool ended = hung_up(fd);
		if (ended && is_pending(r)) { /* in this order: it does no more */
			bool taken = (atomic_load(&d->tail) & RING_TAIL_LEFT) != 0;
			atomic_store(&d->gone, 0);
			return taken ? BY_NOTHING : BY_RING;
		}
		ring_drain(r, fd, doorbells(r));
		return BY_SOCKET_SOON;
	}
	if (doorbells(r) > RING_DOORBELLS || ((atomic_load(&d->tail) & RING_TAIL_LEFT) != 0 && !is_final(r)))
		return BY_NOTHING;
	if (state_of(atomic_load(&d->notified)) == RING_ANSWER_PENDING)
		return BY_SOCKET_SOON;
	ring_drain(r, fd, doorbells(r));
	return doorbells(r) == 0 ? BY_SOCKET : BY_SOCKET_SOON;
}

/* peer_plan: the socket has to wait where a timeout was set, and where it may have ended. Bytes of a program on this CPU do not come while a read polls. */
static bool peer_plan(struct rings *r, struct plan *p)
{
	bool polls = busy_poll() > 0;
	uint32_t core = polls ? atomic_load_explicit(&incoming(r)->core, memory_order_relaxed) : 0;
	*p = (struct plan){polls ? RING_NOTIFY_SPINNING : RING_NOTIFY_ASLEEP, false, 0};
	if (polls && core != (uint32_t)sched_getcpu() + 1)
		p->spin = busy_poll();
	return !has_flag(r, SIDE_TIMED) && !may_have_ended(r);
}

static void peer_reset(struct rings *r, int fd)
{
	(void)fd;
	atomic_store(&r->side->error, ECONNRESET);
}

/*
 * peer_end_of_reading is how the stream has ended. The kernel makes a close with a doorbell byte unread a reset, and one without the end
 * of the stream: what counts are our bytes that the other has not read (RFC 2525, 2.17).
 */
static ssize_t peer_end_of_reading(struct rings *r, int fd)
{
	struct ring_side *s = r->side;
	int failed = atomic_exchange(&s->error, 0);
	bool ring = s->back == 0 && atomic_load(&outgoing(r)->gone) != 1;
	bool unread = !has_flag(r, SIDE_LATE) && s->tail != atomic_load(&outgoing(r)->head), closed = hung_up(fd);
	if (ring && failed == ECONNRESET && !unread)
		failed = 0;
	if (ring && failed == 0 && unread && closed)
		failed = ECONNRESET;
	if (has_flag(r, SIDE_BROKEN))
		failed = ECONNRESET;
	if (closed) /* the next bytes find out: a reader that was killed in its sleep has not asked for a byte */
		atomic_fetch_or(&s->flags, SIDE_CLOSED);
	bool reported = failed == 0 || (atomic_fetch_or(&s->flags, SIDE_RESET) & SIDE_RESET) != 0;
	return ring_end_of_reading(reported ? 0 : failed);
}

static enum outcome peer_may_send(struct rings *r)
{
	return r->side->back != 0 ? MOVED : MAY_SEND;
}

/* peer_unheard: as with TCP, the answer to bytes for a socket that had read all is the reset. */
static int peer_unheard(struct rings *r, uint64_t before)
{
	bool late = atomic_load(&outgoing(r)->head) == before && !has_flag(r, SIDE_BROKEN);
	atomic_fetch_or(&r->side->flags, late ? SIDE_ENDED | SIDE_LATE : SIDE_ENDED);
	return late ? 1 : -1;
}

/* peer_end_of_writing reports why nothing can be written: ECONNRESET if the kernel knows of one, or EPIPE with its signal. */
static ssize_t peer_end_of_writing(struct rings *r, int fd, int flags)
{
	int cause = 0;
	socklen_t len = sizeof cause;
	if (!has_flag(r, SIDE_SHUT))
		KERNEL(getsockopt, fd, SOL_SOCKET, SO_ERROR, &cause, &len);
	return ring_end_of_writing(cause == ECONNRESET ? cause : 0, flags);
}

const struct tier peer_tier = {
	.attach = peer_attach,
	.refuse = peer_refuse,
	.share = peer_share,
	.unmap = peer_unmap,
	.closing = peer_closing,
	.shut = peer_shut,
	.leave = peer_leave,
	.moved = peer_moved,
	.answer = peer_answer,
	.idle = peer_idle,
	.carrier = peer_carrier,
	.plan = peer_plan,
	.reset = peer_reset,
	.end_of_reading = peer_end_of_reading,
	.may_send = peer_may_send,
	.refused = peer_refused,
	.unheard = peer_unheard,
	.end_of_writing = peer_end_of_writing,
	.sleeps = true,
	.patience = RING_TRIES,
};
