#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "library.h"

/* A slot is 16 words of 64 bits: two for each chunk, of which the second has the sequence of the lap in its high half. */
typedef _Atomic uint64_t word;

static word *slot_of(struct ring_queue *q, uint64_t position, uint32_t slots)
{
	return (word *)((char *)(q + 1) + (position & (slots - 1)) * sizeof(struct ring_entry));
}

static uint32_t sequence(uint64_t position, uint32_t slots) { return (uint32_t)(position / slots % UINT32_MAX) + 1; }

static void store(word *slot, int chunk, uint64_t low, uint32_t high, uint32_t lap)
{
	atomic_store_explicit(slot + 2 * chunk, low, memory_order_relaxed);
	atomic_store_explicit(slot + 2 * chunk + 1, (uint64_t)lap << 32 | high, memory_order_release);
}

/* free_slot waits until the node has taken the entry of a lap ago. It is quick, unless the node has no CPU. */
static int free_slot(struct context *c)
{
	struct submission *s = &c->submission;
	for (int spins = 1; s->position - s->consumed >= s->slots; spins++) {
		s->consumed = atomic_load_explicit(&s->queue->consumed, memory_order_acquire);
		if (s->position - s->consumed < s->slots)
			break;
		if (spins % 1024 == 0 && node_is_gone(c))
			return EIO;
		sched_yield();
	}
	return 0;
}

/* put appends one entry. The submission lock is held, and a slot is free. */
static void put(struct submission *s, uint32_t object, int op, const void *data, size_t size, uint32_t offset)
{
	word *slot = slot_of(s->queue, s->position, s->slots);
	uint32_t lap = sequence(s->position, s->slots);
	for (size_t at = 0; at < size; at += RING_QUEUE_CHUNK) {
		unsigned char chunk[16] = {0};
		memcpy(chunk, (const char *)data + at, size - at < RING_QUEUE_CHUNK ? size - at : RING_QUEUE_CHUNK);
		uint64_t low;
		uint32_t high;
		memcpy(&low, chunk, sizeof low);
		memcpy(&high, chunk + sizeof low, sizeof high);
		store(slot, 1 + (int)(at / RING_QUEUE_CHUNK), low, high, lap);
	}
	store(slot, 0, (uint64_t)size << 56 | (uint64_t)op << 48 | object, offset, lap);
	s->position++;
}

/* wake writes to the doorbell if the node has armed the queue since the last time. */
static void wake(struct submission *s)
{
	atomic_thread_fence(memory_order_seq_cst); /* the entry before the look at arm */
	uint32_t arm = atomic_load_explicit(&s->queue->arm, memory_order_relaxed), epoch = arm >> RING_QUEUE_WAKE_BITS;
	if (epoch == s->answered || (arm & ((1u << RING_QUEUE_WAKE_BITS) - 1)) == RING_QUEUE_WAKE_NONE)
		return;
	s->answered = epoch;
	uint64_t one = 1;
	ssize_t n = write(s->doorbell, &one, sizeof one);
	(void)n; /* it is full only if the loop is about to wake */
}

static struct element element_of(const struct ibv_sge *s) { return (struct element){s->addr, s->length, s->lkey}; }

/* put_entries appends a request: entries with the first elements of its list, and then its own with data, whose last member is the
 * space for own elements. The bytes of inlined, if there are pieces, go to the staging memory of its slot. The submission lock is held. */
int put_entries(struct context *c, uint32_t object, int op, const void *data, size_t size, const struct ibv_sge *list, int own, int count,
	const struct ibv_sge *inlined, int pieces)
{
	struct submission *s = &c->submission;
	unsigned char entry[RING_QUEUE_INLINE];
	memcpy(entry, data, size);
	int at = 0, e = 0;
	while (!e && count - at > own) {
		struct list more = {0};
		int n = count - at - own < LIST_ELEMENTS ? count - at - own : LIST_ELEMENTS;
		for (int i = 0; i < n; i++)
			more.elements[i] = element_of(&list[at++]);
		if (!(e = free_slot(c)))
			put(s, object, SUBMIT_LIST, &more, (size_t)n * sizeof(struct element), 0);
	}
	if (e || (e = free_slot(c)))
		return e;
	struct element *rest = (struct element *)(void *)(entry + size - (size_t)own * sizeof(struct element));
	for (int i = 0; at < count; i++)
		rest[i] = element_of(&list[at++]);
	uint32_t offset = 0;
	if (pieces > 0) {
		size_t place = (s->position & (s->slots - 1)) * MAX_INLINE;
		offset = (uint32_t)(place / STAGING_UNIT);
		for (int i = 0; i < pieces; i++) {
			memcpy(s->staging + place, (void *)(uintptr_t)inlined[i].addr, inlined[i].length);
			place += inlined[i].length;
		}
	}
	put(s, object, op, entry, size, offset);
	wake(s);
	return 0;
}

/* take_entry copies the next entry of a completion queue; the caller frees it. */
bool take_entry(struct cq *q, uint32_t *object, void *data, size_t size)
{
	word *slot = slot_of(q->queue, q->position, q->slots);
	uint32_t lap = sequence(q->position, q->slots);
	uint64_t high = atomic_load_explicit(slot + 1, memory_order_acquire);
	if (high >> 32 != lap)
		return false;
	*object = (uint32_t)atomic_load_explicit(slot, memory_order_relaxed);
	for (size_t at = 0; at < size; at += RING_QUEUE_CHUNK) {
		int chunk = 1 + (int)(at / RING_QUEUE_CHUNK);
		high = atomic_load_explicit(slot + 2 * chunk + 1, memory_order_acquire);
		if (high >> 32 != lap)
			return false;
		unsigned char bytes[16];
		uint64_t low = atomic_load_explicit(slot + 2 * chunk, memory_order_relaxed);
		memcpy(bytes, &low, sizeof low);
		memcpy(bytes + sizeof low, &high, sizeof high); /* the low half is data */
		memcpy((char *)data + at, bytes, size - at < RING_QUEUE_CHUNK ? size - at : RING_QUEUE_CHUNK);
	}
	q->position++;
	return true;
}

/* free_entries gives the slots of what was taken back to the node. */
void free_entries(struct cq *q) { atomic_store_explicit(&q->queue->consumed, q->position, memory_order_release); }
