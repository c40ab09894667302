/*
 * ringnode.c - rings between a program and the node (tier 1). The node makes the memory for one connection, and is trusted: the
 * program's locks and indexes are in its page. docs/design/033-rings.md has the reasons.
 */

#include "ringend.h"

#include <sys/ioctl.h>

/* how long a blocking read polls before it sleeps, in ns: see node_plan */
#define SPIN_LEAST 2000
#define SPIN_MOST 50000
#define SPIN_WAKEUP 30000

static uint32_t state(const struct rings *r)
{
	return atomic_load(&r->page->state);
}

static bool node_attach(struct rings *r, int fd, bool connects)
{
	(void)fd, (void)connects;
	r->side = (struct ring_side *)r->page->own;
	r->number = 0;
	return true;
}

/* move asks the node to use the socket, and takes out the doorbell bytes in front of what it writes then. */
static void move(int fd, uint32_t taken)
{
	struct shim_request q = {.op = SHIM_MOVE};
	struct shim_reply reply;
	uint32_t doorbells = 0;
	if (ask(&q, fd, &reply) != 0)
		return; /* it is closed, or was moved by another process */
	memcpy(&doorbells, reply.value, sizeof doorbells);
	for (uint32_t left = doorbells - taken; left > 0;) {
		char dropped[64];
		long n = KERNEL(recvfrom, fd, dropped, left < sizeof dropped ? left : sizeof dropped, MSG_DONTWAIT, NULL, NULL);
		if (n <= 0)
			return;
		left -= (uint32_t)n;
	}
}

static int node_refuse(struct rings *r, int fd, bool connects)
{
	(void)r, (void)connects;
	move(fd, 0);
	return fd;
}

static bool node_moved(const struct rings *r)
{
	return state(r) == RING_STATE_MOVED;
}

/*
 * node_shut publishes that the direction to the node has ended. The socket stays open in that direction, for doorbell bytes that announce
 * space in the other ring.
 */
static int node_shut(struct rings *r, int fd, int how)
{
	bool open = false;
	if (how != SHUT_RD && ring_lock_send(r, fd)) {
		open = state(r) == RING_STATE_OPEN || state(r) == RING_STATE_FAILED;
		if (open && atomic_exchange(&r->page->shut, 1) == 0)
			ring_doorbell(r, fd); /* a node that has ended shows later */
		lock_give(&r->side->send);
	}
	if (open && how == SHUT_WR)
		return 0;
	return (int)KERNEL(shutdown, fd, open ? SHUT_RD : how);
}

static bool node_leave(struct rings *r, int fd)
{
	if (ring_lock_send(r, fd)) {
		if (ring_lock_receive(r, fd)) {
			if (!node_moved(r)) {
				move(fd, r->side->taken);
				if (atomic_load(&r->page->shut) != 0)
					KERNEL(shutdown, fd, SHUT_WR);
			}
			lock_give(&r->side->receive);
		}
		lock_give(&r->side->send);
	}
	return node_moved(r);
}

static bool node_idle(const struct rings *r)
{
	return state(r) == RING_STATE_OPEN && !has_flag(r, SIDE_ENDED);
}

static enum carrier node_carrier(struct rings *r, int fd)
{
	(void)fd;
	return node_moved(r) ? BY_SOCKET : BY_RING;
}

/* node_emptied ends the stream for poll(2) and read(2), if the ring had the last byte. */
static void node_emptied(struct rings *r, int fd)
{
	if (atomic_load(&r->page->fin) == 0 || has_bytes(r) || (atomic_fetch_or(&r->side->flags, SIDE_FINISHED) & SIDE_FINISHED) != 0)
		return;
	KERNEL(shutdown, fd, SHUT_RD);
	ring_doorbell(r, fd);
}

/*
 * node_plan makes a read poll before it blocks, while that pays: a sleep and its wakeup cost as much as SPIN_MOST. It follows what the
 * waits before took (node_waited). Without busy polling the node gets the CPU between two looks, if it is on this one.
 */
static bool node_plan(struct rings *r, struct plan *p)
{
	uint32_t ns = atomic_load_explicit(&r->spin, memory_order_relaxed);
	bool busy = busy_poll() > 0;
	*p = (struct plan){RING_NOTIFY_SPINNING, !busy, busy ? busy_poll() : ns};
	return p->spin >= SPIN_LEAST || busy;
}

/* node_waited notes how long a wait took, of which all was a sleep or polling in vain before it. */
static void node_waited(struct rings *r, uint64_t took)
{
	uint32_t ns = atomic_load_explicit(&r->spin, memory_order_relaxed);
	ns = took <= SPIN_MOST + SPIN_WAKEUP ? SPIN_MOST : ns / 2;
	atomic_store_explicit(&r->spin, ns, memory_order_relaxed);
}

/* node_reset: the kernel reports ECONNRESET for every end but FIN. The node knows the cause. */
static void node_reset(struct rings *r, int fd)
{
	int cause = socket_error(fd);
	atomic_store(&r->side->error, cause != 0 ? cause : ECONNRESET);
	if (state(r) == RING_STATE_OPEN)
		atomic_fetch_or(&r->side->flags, SIDE_ENDED); /* a node that was killed has not published that */
}

static ssize_t node_end_of_reading(struct rings *r, int fd)
{
	(void)fd;
	return ring_end_of_reading(atomic_exchange(&r->side->error, 0));
}

static enum outcome node_may_send(struct rings *r)
{
	if (atomic_load(&r->page->shut) != 0)
		return node_moved(r) ? MOVED : ENDED;
	switch (state(r)) {
	case RING_STATE_CONNECTING: return WAITS;
	case RING_STATE_OPEN: return MAY_SEND;
	case RING_STATE_MOVED: return MOVED;
	}
	return ENDED;
}

/* node_recovered: who was killed with the lock may have noted that the node is woken, and not have written the doorbell byte. */
static void node_recovered(struct rings *r, int fd)
{
	ring_doorbell(r, fd);
}

/* node_unheard: without a reader the bytes are lost. */
static int node_unheard(struct rings *r, uint64_t before)
{
	(void)r, (void)before;
	return -1;
}

/*
 * node_end_of_writing reports why nothing can be written: EPIPE, with its signal, or once what the kernel or the node knows, such as
 * ECONNRESET. After shutdown(2) and a reset with bytes to come the socket itself is open, for doorbell bytes, and it may be for a
 * moment before the node closes its end.
 */
static ssize_t node_end_of_writing(struct rings *r, int fd, int flags)
{
	static const char zero;
	bool shut = atomic_load(&r->page->shut) != 0, open = shut || state(r) == RING_STATE_FAILED;
	if (!open && KERNEL(sendto, fd, &zero, 1, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0) < 0 && errno == ECONNRESET)
		return -1;
	int cause = shut ? 0 : atomic_exchange(&r->side->error, 0);
	if (cause == 0 && !shut)
		cause = socket_error(fd);
	return ring_end_of_writing(cause, flags);
}

const struct tier node_tier = {
	.attach = node_attach,
	.refuse = node_refuse,
	.unmap = ring_unmap,
	.shut = node_shut,
	.leave = node_leave,
	.moved = node_moved,
	.idle = node_idle,
	.carrier = node_carrier,
	.emptied = node_emptied,
	.plan = node_plan,
	.waited = node_waited,
	.reset = node_reset,
	.end_of_reading = node_end_of_reading,
	.may_send = node_may_send,
	.recovered = node_recovered,
	.unheard = node_unheard,
	.end_of_writing = node_end_of_writing,
	.guard = 1,
};
