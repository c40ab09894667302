/* memory.c - the frames of an arena as mbufs, and the mempool of a queue. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mbuf_pool_ops.h>

#define OBJECT_HEADER 64 /* rte_mempool_objhdr, on a cache line */
#define POOL_OPS "millrace"

/* limited returns a length as mbufs have it: a frame of 64 KiB has one byte too many. */
static uint16_t limited(size_t n)
{
	return n < UINT16_MAX ? (uint16_t)n : UINT16_MAX;
}

static void *thread(void)
{
	return __builtin_thread_pointer();
}

/* The operations of the mempool of a queue. All mbufs belong to one mempool for as long as their frames are the queue's. */

static int pool_alloc(struct rte_mempool *mp)
{
	return mp->pool_data ? 0 : -ENOTSUP; /* mrd_queue_new sets it */
}

static void pool_free(struct rte_mempool *mp)
{
	(void)mp;
}

static int pool_enqueue(struct rte_mempool *mp, void *const *objects, unsigned int n)
{
	struct stack *s = mp->pool_data;
	if (likely(s->owner == thread())) {
		uint32_t at = s->counts->free;
		for (unsigned int i = 0; i < n; i++)
			s->slot[at + i] = objects[i];
		s->counts->free = at + n;
		return 0;
	}
	rte_spinlock_lock(&s->lock);
	memcpy(s->remote + s->remote_n, objects, n * sizeof(*objects));
	__atomic_store_n(&s->remote_n, s->remote_n + n, __ATOMIC_RELEASE);
	rte_spinlock_unlock(&s->lock);
	return 0;
}

static int pool_dequeue(struct rte_mempool *mp, void **objects, unsigned int n)
{
	struct stack *s = mp->pool_data;
	if (unlikely(s->owner != thread() || s->counts->free < n))
		return -ENOBUFS;
	s->counts->free -= n;
	memcpy(objects, s->slot + s->counts->free, n * sizeof(*objects));
	return 0;
}

static unsigned int pool_count(const struct rte_mempool *mp)
{
	const struct stack *s = mp->pool_data;
	return s->counts->free + s->remote_n;
}

static const struct rte_mempool_ops pool_ops = {
	.name = POOL_OPS,
	.alloc = pool_alloc,
	.free = pool_free,
	.enqueue = pool_enqueue,
	.dequeue = pool_dequeue,
	.get_count = pool_count,
};

RTE_MEMPOOL_REGISTER_OPS(pool_ops);

/* adopt makes the calling thread the owner of the queue's stack, and takes in what others have freed. */
void adopt(struct mrd_queue *q)
{
	struct stack *s = &q->stack;
	s->owner = thread();
	if (likely(!__atomic_load_n(&s->remote_n, __ATOMIC_ACQUIRE)))
		return;
	rte_spinlock_lock(&s->lock);
	memcpy(s->slot + q->counts.free, s->remote, s->remote_n * sizeof(void *));
	q->counts.free += s->remote_n;
	__atomic_store_n(&s->remote_n, 0, __ATOMIC_RELEASE);
	rte_spinlock_unlock(&s->lock);
}

/* prepare writes what drivers expect of a free mbuf and never write themselves. In frames it is written anew each time,
 * because the frame's last owner may have used all of it. */
static void prepare(struct mrd_memory *m, uint32_t frame)
{
	struct rte_mbuf *b = mbuf_of(m, frame);
	size_t before = m->inside ? OBJECT_HEADER + sizeof(*b) : 0;
	memset(b, 0, sizeof(*b));
	b->buf_addr = frame_at(m, frame) + before;
	rte_mbuf_iova_set(b, (uintptr_t)b->buf_addr);
	b->buf_len = limited(((size_t)1 << m->frame_shift) - before);
	b->nb_segs = 1;
	b->port = RTE_MBUF_PORT_INVALID;
	rte_mbuf_refcnt_set(b, 1);
}

struct mrd_memory *mrd_memory_new(void *base, uint32_t frames, uint32_t frame_shift, uint32_t inside)
{
	struct mrd_memory *m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	*m = (struct mrd_memory){.base = base, .frames = frames, .frame_shift = (uint8_t)frame_shift, .inside = inside};
	if (inside) {
		m->headers = (char *)base + OBJECT_HEADER;
		m->mbuf_shift = (uint8_t)frame_shift;
		return m;
	}
	m->mbuf_shift = 7;
	_Static_assert(sizeof(struct rte_mbuf) == 128, "mbuf_shift");
	void *table = mmap(NULL, (size_t)frames << 7, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (table == MAP_FAILED) {
		free(m);
		return NULL;
	}
	m->headers = table;
	for (uint32_t i = 0; i < frames; i++)
		prepare(m, i);
	return m;
}

void mrd_memory_free(struct mrd_memory *m)
{
	if (!m->inside)
		munmap(m->headers, (size_t)m->frames << 7);
	free(m);
}

/* own makes a frame the queue's: its mbuf is freed to the queue's mempool. */
static struct rte_mbuf *own(struct mrd_queue *q, uint32_t off)
{
	struct mrd_memory *m = q->memory;
	uint32_t frame = off >> m->frame_shift;
	struct rte_mbuf *b = mbuf_of(m, frame);
	if (m->inside) {
		prepare(m, frame);
		rte_mempool_get_header(b)->mp = q->pool;
	}
	b->pool = q->pool;
	q->owned[frame] = 1;
	q->owned_n++;
	return b;
}

void push(struct mrd_queue *q, struct rte_mbuf *b)
{
	q->stack.slot[q->counts.free++] = b;
}

/* mrd_lend gives the queue free frames to receive into. */
void mrd_lend(struct mrd_queue *q, const uint32_t *offs, uint32_t n)
{
	adopt(q);
	for (uint32_t i = 0; i < n; i++)
		push(q, own(q, offs[i]));
}

static uint32_t take_back(struct mrd_queue *q, uint32_t *to, uint32_t n)
{
	struct mrd_memory *m = q->memory;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t frame = frame_of(m, q->stack.slot[--q->counts.free]);
		q->owned[frame] = 0;
		to[i] = frame << m->frame_shift;
	}
	q->owned_n -= n;
	return n;
}

/* surplus returns frames beyond those that the queue keeps. */
uint32_t surplus(struct mrd_queue *q, uint32_t *to, uint32_t room)
{
	uint32_t over = q->counts.free > q->depth ? q->counts.free - q->depth : 0;
	return take_back(q, to, RTE_MIN(over, room));
}

/* mrd_return returns free frames: those beyond the queue's depth, or with all every frame that is the queue's, which
 * only a stopped device permits. */
uint32_t mrd_return(struct mrd_queue *q, uint32_t *to, uint32_t room, uint32_t all)
{
	adopt(q);
	if (!all)
		return surplus(q, to, room);
	uint32_t n = mrd_owned(q, to, room);
	for (uint32_t i = 0; i < n; i++)
		q->owned[to[i] >> q->memory->frame_shift] = 0;
	q->owned_n -= n;
	q->counts.free = 0;
	return n;
}

/* mrd_rest is called when the device has started: the frames that it has then are those of its receive ring. */
void mrd_rest(struct mrd_queue *q)
{
	adopt(q);
	q->resting = q->owned_n - q->counts.free;
}

/* mrd_owned lists the frames that are the queue's. */
uint32_t mrd_owned(struct mrd_queue *q, uint32_t *to, uint32_t room)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < q->memory->frames && n < room; i++)
		if (q->owned[i])
			to[n++] = i << q->memory->frame_shift;
	return n;
}

/* new_pool makes a mempool whose objects are the mbufs of m. Its one chunk is the arena: drivers that register memory
 * with a device (AF_XDP, mlx5) find it there. It is entered by hand, because rte_mempool_populate_* would write into
 * every frame, and other devices may have packets in them. */
static struct rte_mempool *new_pool(struct mrd_queue *q, const char *name)
{
	struct mrd_memory *m = q->memory;
	uint32_t size = 1u << m->frame_shift, element = m->inside ? size - OBJECT_HEADER : sizeof(struct rte_mbuf);
	struct rte_mempool *mp = rte_mempool_create_empty(name, m->frames, element, 0, sizeof(struct rte_pktmbuf_pool_private),
		SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_SPREAD);
	if (!mp)
		return NULL;
	struct rte_mempool_memhdr *chunk = rte_zmalloc("millrace", sizeof(*chunk), 0);
	if (!chunk || rte_mempool_set_ops_byname(mp, POOL_OPS, NULL) != 0) {
		rte_free(chunk);
		rte_mempool_free(mp);
		return NULL;
	}
	struct rte_pktmbuf_pool_private room = {
		.mbuf_data_room_size = limited(m->inside ? size - OBJECT_HEADER - sizeof(struct rte_mbuf) : size),
	};
	rte_pktmbuf_pool_init(mp, &room);
	mp->pool_data = &q->stack;
	mp->flags |= RTE_MEMPOOL_F_POOL_CREATED;
	mp->populated_size = m->frames;
	*chunk = (struct rte_mempool_memhdr){.mp = mp, .addr = m->base, .iova = (uintptr_t)m->base, .len = (size_t)m->frames << m->frame_shift};
	STAILQ_INSERT_TAIL(&mp->mem_list, chunk, next);
	mp->nb_mem_chunks++;
	return mp;
}

struct mrd_queue *mrd_queue_new(struct mrd_memory *m, uint32_t port, uint32_t id, uint32_t depth)
{
	struct mrd_queue *q = NULL;
	if (posix_memalign((void **)&q, 128, sizeof(*q)) != 0)
		return NULL;
	memset(q, 0, sizeof(*q));
	q->memory = m;
	q->port = (uint16_t)port;
	q->id = (uint16_t)id;
	q->depth = depth;
	q->owned = calloc(m->frames, 1);
	q->stack.slot = calloc(m->frames, sizeof(void *));
	q->stack.remote = calloc(m->frames, sizeof(void *));
	q->stack.counts = &q->counts;
	q->stack.size = m->frames;
	rte_spinlock_init(&q->stack.lock);
	char name[RTE_MEMPOOL_NAMESIZE];
	snprintf(name, sizeof(name), "mr%u.%u.%p", port, id, (void *)q);
	if (q->owned && q->stack.slot && q->stack.remote)
		q->pool = new_pool(q, name);
	if (!q->pool) {
		mrd_queue_free(q);
		return NULL;
	}
	return q;
}

void mrd_queue_free(struct mrd_queue *q)
{
	if (q->pool)
		rte_mempool_free(q->pool);
	free(q->owned);
	free(q->stack.slot);
	free(q->stack.remote);
	free(q);
}
