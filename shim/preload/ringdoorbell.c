/*
 * ringdoorbell.c - wakeups of both ends of rings: doorbell bytes in the socket, and futex(2).
 *
 * The socket of a consumer has a byte while its ring has bytes, unless a reader is about to take them all: so poll(2) and its relatives
 * are right. The call that empties the ring takes the byte out. One may be on its way when its bytes have been read, so both ends
 * count doorbell bytes (notified, taken).
 */

#include "ringend.h"

#include <sched.h>

static const char zeros[RING_FILL];

/*
 * ring_arm makes the producer announce the next bytes. A new epoch begins only where the last one was answered: with a new epoch for each
 * call the producer would write a doorbell byte for each, and the socket of a busy reader would fill with them.
 */
void ring_arm(struct ring_direction *d)
{
	uint64_t arm = atomic_load(&d->arm);
	for (int i = 0; i < RING_TRIES; i++) {
		uint32_t answer = answer_to(arm, atomic_load(&d->notified)), state = state_of(arm);
		bool sleeper = answer == RING_ANSWER_NONE && (state == RING_NOTIFY_ASLEEP || state == RING_NOTIFY_WATCHED);
		uint64_t next = wakeup(sleeper ? RING_NOTIFY_WATCHED : RING_NOTIFY_ARMED, epoch_of(arm) + (answer != RING_ANSWER_NONE), high_of(arm));
		if (next == arm || atomic_compare_exchange_strong(&d->arm, &arm, next))
			return;
	}
}

/* disarm spares the producer a second doorbell byte. Another thread may have armed since: then it stays armed. */
static void disarm(struct ring_direction *d)
{
	uint64_t arm = atomic_load(&d->arm);
	if (state_of(arm) == RING_NOTIFY_ARMED)
		atomic_compare_exchange_strong(&d->arm, &arm, wakeup(RING_NOTIFY_DISARMED, epoch_of(arm), high_of(arm)));
}

uint32_t ring_drain(struct rings *r, int fd, uint32_t n)
{
	char dropped[4096];
	uint32_t done = 0;
	for (n = n < RING_DOORBELLS ? n : RING_DOORBELLS; done < n;) {
		size_t most = n - done < sizeof dropped ? n - done : sizeof dropped;
		long got = KERNEL(recvfrom, fd, dropped, most, MSG_DONTWAIT, NULL, NULL);
		if (got <= 0) /* on its way: the next call takes it */
			break;
		r->side->taken += (uint32_t)got;
		done += (uint32_t)got;
	}
	return done;
}

/*
 * counted_doorbells returns how many doorbell bytes the producer has counted. One that is PENDING is waited for: the producer may not have
 * seen that all is read.
 */
static uint32_t counted_doorbells(struct rings *r)
{
	uint64_t notified = atomic_load(&incoming(r)->notified);
	for (unsigned i = 0; i < r->tier->patience && state_of(notified) == RING_ANSWER_PENDING; i++) {
		sched_yield();
		notified = atomic_load(&incoming(r)->notified);
	}
	return high_of(notified);
}

/*
 * drain_doorbells takes out the doorbell bytes of a ring that was read empty, and reports whether it is. It arms first and looks at tail
 * afterwards: bytes that come in between are seen here or announced by the producer, which stores tail and then loads arm. In the
 * other order both could miss them, and poll(2) would sleep on a ring with bytes.
 */
bool drain_doorbells(struct rings *r, int fd)
{
	ring_arm(incoming(r));
	uint32_t left = counted_doorbells(r) - r->side->taken; /* and then tail: later ones may announce what comes now */
	if (has_bytes(r)) {
		if (left > 0)
			disarm(incoming(r));
		return false;
	}
	for (unsigned i = 0; left > 0; i++) {
		left -= ring_drain(r, fd, left);
		if (left == 0 || i >= r->tier->patience)
			break;
		sched_yield(); /* one is on its way: it would make the socket readable for nothing */
	}
	return true;
}

/*
 * A process may have been killed before it counted what it took: a byte that is there while the ring is empty, in this order, announces
 * nothing.
 */
void discard_spurious_doorbell(struct rings *r, int fd)
{
	char first;
	if (!ring_lock_receive(r, fd))
		return;
	if (!has_bytes(r) && r->tier->carrier(r, fd) == BY_RING) {
		if (doorbells(r) != 0)
			drain_doorbells(r, fd);
		else if (KERNEL(recvfrom, fd, &first, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) == 1 && !has_bytes(r) && !by_socket(r) &&
			 doorbells(r) == 0) /* no end asks for anything either */
			KERNEL(recvfrom, fd, &first, 1, MSG_DONTWAIT, NULL, NULL);
	}
	lock_give(&r->side->receive);
}

/* change_notified sets the answer for an epoch and counts n more bytes, unless another thread of this end has changed *notified. */
static bool change_notified(struct ring_direction *d, uint64_t *notified, uint32_t answer, uint32_t epoch, uint32_t n)
{
	return atomic_compare_exchange_strong(&d->notified, notified, wakeup(answer, epoch, high_of(*notified) + n));
}

/* count_bytes counts n more bytes, or fewer. */
static void count_bytes(struct ring_direction *d, uint32_t n)
{
	uint64_t notified = atomic_load(&d->notified);
	for (int i = 0; i < RING_TRIES && !change_notified(d, &notified, state_of(notified), epoch_of(notified), n); i++)
		;
}

/* set_answer is change_notified for a word that has the answer PENDING, so that other threads only count. */
static void set_answer(struct ring_direction *d, uint32_t answer, uint32_t epoch, uint32_t n)
{
	uint64_t notified = atomic_load(&d->notified);
	for (int i = 0; i < RING_TRIES && !change_notified(d, &notified, answer, epoch, n); i++)
		;
}

enum announced { COUNTED, UNNEEDED, CHANGED };

/*
 * announce_bytes is change_notified for n bytes that are about to be written. They are UNNEEDED if all was read since, and a byte would
 * make the socket readable for nothing, which programs take for an error if they get EAGAIN then; or if the consumer has left the
 * ring, and bytes would be in front of those of the stream. A consumer that counts meanwhile waits while the answer is PENDING. One
 * that has counted before has stored its head, or gone, before that.
 */
static enum announced announce_bytes(struct rings *r, uint64_t *notified, uint32_t answer, uint32_t epoch, uint32_t n, bool empty)
{
	struct ring_direction *d = outgoing(r);
	uint64_t before = *notified;
	if (!r->tier->sleeps)
		return change_notified(d, notified, answer, epoch, n) ? COUNTED : CHANGED;
	if (!change_notified(d, notified, RING_ANSWER_PENDING, epoch, 0))
		return CHANGED;
	if (atomic_load(&d->gone) != 1 && (empty || atomic_load(&d->head) != r->side->tail)) {
		set_answer(d, answer, epoch, n);
		return COUNTED;
	}
	set_answer(d, state_of(before), epoch_of(before), 0);
	return UNNEEDED;
}

/* write_counted writes n doorbell bytes that are counted already. -1: the other end has closed its socket. */
static int write_counted(struct rings *r, int fd, uint32_t n)
{
	long sent;
	do
		sent = KERNEL(sendto, fd, zeros, n, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	while (sent < 0 && errno == EINTR);
	int cause = errno;
	if (sent < (long)n)
		count_bytes(outgoing(r), (sent > 0 ? (uint32_t)sent : 0) - n);
	return sent >= 0 || cause == EAGAIN ? 0 : -1;
}

int ring_doorbell(struct rings *r, int fd)
{
	count_bytes(outgoing(r), 1);
	return write_counted(r, fd, 1);
}

/*
 * ring_announce notifies a consumer that has asked for it of new bytes. Most sends end at the first return: a consumer that polls or has a
 * doorbell byte wants no other, and a send is then a copy and two stores without a system call.
 */
int ring_announce(struct rings *r, int fd, bool other)
{
	struct ring_direction *d = outgoing(r);
	uint64_t notified = atomic_load(&d->notified);
	for (int i = 0; i < RING_TRIES; i++) {
		uint64_t arm = atomic_load(&d->arm); /* after tail */
		uint32_t state = state_of(arm), want = high_of(arm), answer = answer_to(arm, notified);
		bool armed = state == RING_NOTIFY_ARMED || state == RING_NOTIFY_WATCHED;
		bool sleeps = state == RING_NOTIFY_ASLEEP || state == RING_NOTIFY_WATCHED;
		if (state == RING_NOTIFY_DISARMED || state > RING_NOTIFY_WATCHED || answer >= RING_ANSWER_NOTIFIED)
			return 0;
		/* How much there is has to be known where that is more than want, or could be nothing. */
		long space = ring_space(r, armed || want >= r->size ? r->size : r->size - want);
		if (space < 0)
			return ring_fail(r, fd);
		if (armed && space == (long)r->size && !other)
			return 0;
		bool byte = armed || r->size - (uint32_t)space > want, wake = sleeps && answer == RING_ANSWER_NONE;
		if (!byte && !wake)
			return 0;
		enum announced a = COUNTED;
		if (byte)
			a = announce_bytes(r, &notified, RING_ANSWER_NOTIFIED, epoch_of(arm), 1, other);
		else if (!change_notified(d, &notified, RING_ANSWER_WOKEN, epoch_of(arm), 0))
			a = CHANGED;
		if (a == CHANGED)
			continue;
		if (a == COUNTED && wake)
			wake_all(notified_word(d));
		return a == COUNTED && byte ? write_counted(r, fd, 1) : 0;
	}
	return 0;
}

/*
 * ring_fill makes poll(2) report the socket as not writable while the ring is full: the kernel decides that by the socket's buffer alone.
 * The consumer drains these bytes when it has made space, and the socket becomes writable again. They are written once for each
 * wait (RING_SPACE_FILLED), as more would have to be drained before bytes of the stream.
 */
int ring_fill(struct rings *r, int fd)
{
	struct ring_direction *d = outgoing(r);
	uint32_t space = atomic_load(&d->space), freed = atomic_load(&d->freed);
	if ((space & RING_SPACE_FILLED) != 0 && space >> RING_EPOCH_SHIFT != (freed & RING_EPOCH_MASK))
		return r->tier->sleeps && hung_up(fd) ? -1 : 0;
	ring_ask_space(d, RING_SPACE_FILLED);
	uint64_t notified = atomic_load(&d->notified);
	for (int i = 0; i < RING_TRIES && state_of(notified) != RING_ANSWER_ENDED; i++) {
		/* They answer no epoch: the consumer may have read all since, and drains them. */
		enum announced a = announce_bytes(r, &notified, state_of(notified), epoch_of(notified), RING_FILL + r->tier->guard, false);
		if (a == CHANGED)
			continue;
		if (a == UNNEEDED)
			return 0;
		if (write_counted(r, fd, RING_FILL) != 0)
			return -1;
		return r->tier->guard > 0 ? write_counted(r, fd, r->tier->guard) : 0;
	}
	return 0;
}

void ring_end_doorbells(struct rings *r)
{
	struct ring_direction *d = outgoing(r);
	uint64_t notified = atomic_load(&d->notified);
	for (int i = 0; i < RING_TRIES && state_of(notified) != RING_ANSWER_ENDED; i++)
		if (change_notified(d, &notified, RING_ANSWER_ENDED, epoch_of(notified), 0)) {
			wake_all(notified_word(d));
			return;
		}
}

void ring_wake(struct rings *r)
{
	struct ring_direction *d = outgoing(r), *from = incoming(r);
	atomic_fetch_add(&d->closes, 1);
	uint64_t notified = atomic_load(&d->notified), arm = atomic_load(&d->arm);
	bool sleeps = state_of(arm) == RING_NOTIFY_ASLEEP || state_of(arm) == RING_NOTIFY_WATCHED;
	for (int i = 0; i < RING_TRIES && sleeps && answer_to(arm, notified) == RING_ANSWER_NONE; i++)
		if (change_notified(d, &notified, RING_ANSWER_WOKEN, epoch_of(arm), 0)) {
			wake_all(notified_word(d));
			break;
		}
	uint32_t space = atomic_load(&from->space);
	if ((space & RING_SPACE_SLEEPS) != 0 && space >> RING_EPOCH_SHIFT != (atomic_fetch_add(&from->freed, RING_NUDGE) & RING_EPOCH_MASK))
		wake_all(&from->freed);
}

/* A broken end cannot be mended: which bytes of the stream were read is not known. A reset is an outcome that every program handles. */
int ring_fail(struct rings *r, int fd)
{
	atomic_fetch_or(&r->side->flags, SIDE_BROKEN);
	KERNEL(shutdown, fd, SHUT_RDWR);
	ring_wake(r);
	errno = ECONNRESET;
	return -1;
}

void ring_ask_space(struct ring_direction *d, uint32_t bit)
{
	uint32_t space = atomic_load(&d->space), epoch = space >> RING_EPOCH_SHIFT;
	bool waits = epoch != (atomic_load(&d->freed) & RING_EPOCH_MASK);
	uint32_t bits = waits ? space & ((1u << RING_EPOCH_SHIFT) - 1) : 0;
	atomic_store(&d->space, ((epoch + 1) & RING_EPOCH_MASK) << RING_EPOCH_SHIFT | bits | bit);
}

void ring_answer_space(struct rings *r, int fd, uint32_t n)
{
	struct ring_direction *d = incoming(r);
	uint32_t space = atomic_load(&d->space), epoch = space >> RING_EPOCH_SHIFT, freed = atomic_load(&d->freed);
	if (epoch == (freed & RING_EPOCH_MASK))
		return;
	for (int i = 0; i < RING_TRIES && !atomic_compare_exchange_strong(&d->freed, &freed, (freed & ~RING_EPOCH_MASK) | epoch); i++)
		;
	if ((space & RING_SPACE_SLEEPS) != 0)
		wake_all(&d->freed);
	if ((space & RING_SPACE_FILLED) != 0)
		ring_drain(r, fd, n);
	if ((space & RING_SPACE_BYTE) != 0)
		ring_doorbell(r, fd); /* a node that has ended shows later */
}

/*
 * ring_lie_down announces that the caller waits beside the socket, and takes want bytes then. False: another thread does, or a
 * doorbell byte is there. The receive lock is held.
 */
bool ring_lie_down(struct rings *r, size_t want, const struct plan *p)
{
	struct ring_direction *d = incoming(r);
	uint64_t arm = atomic_load(&d->arm);
	uint32_t most = want < UINT32_MAX ? (uint32_t)want : UINT32_MAX;
	if (state_of(arm) != RING_NOTIFY_ARMED || answer_to(arm, atomic_load(&d->notified)) != RING_ANSWER_NONE)
		return false;
	return atomic_compare_exchange_strong(&d->arm, &arm, wakeup(p->notify, epoch_of(arm), most));
}

/* get_up undoes that. A jump out of the wait calls it, too: poll(2) would not see the bytes that come next. */
static void get_up(void *direction)
{
	struct ring_direction *d = direction;
	uint64_t arm = atomic_load(&d->arm);
	for (int i = 0; i < RING_TRIES; i++) {
		uint32_t woken = answer_to(arm, atomic_load(&d->notified)) == RING_ANSWER_WOKEN;
		if (state_of(arm) == RING_NOTIFY_ARMED || state_of(arm) == RING_NOTIFY_DISARMED ||
		    atomic_compare_exchange_strong(&d->arm, &arm, wakeup(RING_NOTIFY_ARMED, epoch_of(arm) + woken, high_of(arm))))
			return;
	}
}

static bool waits(struct rings *r)
{
	return !has_bytes(r) && r->tier->idle(r);
}

/* spin_before_sleep polls for as long as p permits. The producer writes no doorbell byte meanwhile, unless it has more than the caller takes. */
static void spin_before_sleep(struct rings *r, const struct plan *p)
{
	uint64_t end = now() + p->spin;
	while (waits(r) && now() < end) {
		for (int i = 0; i < 32 && atomic_load_explicit(&incoming(r)->tail, memory_order_acquire) == r->side->head; i++)
			pause_cpu();
		if (p->yields && !has_bytes(r))
			sched_yield();
	}
}

int ring_rest(struct rings *r, const struct plan *p)
{
	struct ring_direction *d = incoming(r);
	int result = 0;
	wait_begin(get_up, d);
	if (p->notify == RING_NOTIFY_SPINNING) {
		spin_before_sleep(r, p);
		uint64_t arm = atomic_load(&d->arm);
		if (r->tier->sleeps && state_of(arm) == RING_NOTIFY_SPINNING && waits(r))
			atomic_compare_exchange_strong(&d->arm, &arm, wakeup(RING_NOTIFY_ASLEEP, epoch_of(arm), high_of(arm)));
	}
	uint64_t arm = atomic_load(&d->arm), notified = atomic_load(&d->notified); /* in this order, and then tail */
	bool asleep = state_of(arm) == RING_NOTIFY_ASLEEP || state_of(arm) == RING_NOTIFY_WATCHED;
	if (asleep && answer_to(arm, notified) == RING_ANSWER_NONE && waits(r))
		result = sleep_on(notified_word(d), (uint32_t)notified, longest_sleep(r));
	get_up(d);
	wait_end();
	return result < 0 && !has_bytes(r) ? -1 : 0;
}
