/* move.c - packets between a device and batches of descriptors. */
#define _GNU_SOURCE
#include "shim.h"

#include <string.h>

#include <rte_ether.h>
#include <rte_prefetch.h>

#define MOST_PIECES 40 /* frames of a packet: 64 KiB in frames of 2 KiB, and room for headers */
#define HEADER_END (64 + sizeof(struct rte_mbuf)) /* of mbufs in frames: mrd_memory */

/* Marks of received packets that need more than a descriptor: the device has joined segments, taken a VLAN tag out, found a
 * checksum wrong, or (both bits of the mask) not filled one in. */
#define RX_CARE (RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_VLAN_STRIPPED | RTE_MBUF_F_RX_L4_CKSUM_BAD)

/* verified returns the flag of a transport checksum that the device has verified, of a packet without RX_CARE. */
static inline uint16_t verified(uint64_t ol_flags)
{
	_Static_assert(RTE_MBUF_F_RX_L4_CKSUM_GOOD == 1 << 8 && MR_FLAG_L4_CHECKSUM_OK == 1 << 4, "shift");
	return (uint16_t)((ol_flags & RTE_MBUF_F_RX_L4_CKSUM_GOOD) >> 4);
}

/* claimed returns the rule of a packet: MRD_CLAIMED where a rule of the device has marked it. */
static inline uint16_t claimed(uint64_t ol_flags)
{
	return ol_flags & RTE_MBUF_F_RX_FDIR_ID ? MRD_CLAIMED : 0;
}

/* refuse frees a received packet that no batch can hold, or that has no bytes. */
static void refuse(struct mrd_queue *q, struct rte_mbuf *b)
{
	add(&q->counts.rx_invalid, 1);
	rte_pktmbuf_free(b);
}

/* disown takes a frame out of the queue, for the caller of mrd_rx. */
static void disown(struct mrd_queue *q, const struct rte_mbuf *b)
{
	q->owned[frame_of(q->memory, b)] = 0;
	q->owned_n--;
}

/* copied copies a packet of another mempool into an mbuf of the queue: another queue sent it through a ring in memory,
 * and its frame must return there. The caller has checked that an mbuf is free. NULL: the packet does not fit. */
static struct rte_mbuf *copied(struct mrd_queue *q, struct rte_mbuf *b)
{
	struct rte_mbuf *own = rte_pktmbuf_alloc(q->pool);
	uint32_t n = b->pkt_len;
	if (n > rte_pktmbuf_tailroom(own)) {
		rte_pktmbuf_free(own);
		refuse(q, b);
		return NULL;
	}
	char *to = rte_pktmbuf_append(own, (uint16_t)n);
	const void *from = rte_pktmbuf_read(b, 0, n, to); /* copies the pieces of a packet that has several */
	if (from != to)
		memcpy(to, from, n);
	rte_pktmbuf_free(b);
	return own;
}

/* describe_chain writes the descriptors of a packet of several frames and returns their number. */
static uint32_t describe_chain(struct mrd_queue *q, struct rte_mbuf *b, struct mr_desc *d, uint32_t stamp)
{
	const char *base = q->memory->base;
	uint64_t marks = b->ol_flags;
	uint32_t n = 0;
	for (struct rte_mbuf *next; b; b = next) {
		next = b->next;
		d[n++] = (struct mr_desc){
			.off = (uint32_t)((const char *)b->buf_addr - base) + b->data_off,
			.len = b->data_len,
			.stamp = stamp,
			.flags = next ? MR_FLAG_MORE : 0,
		};
		b->next = NULL; /* as drivers expect a free mbuf */
		b->nb_segs = 1;
		disown(q, b);
	}
	if (!(marks & RX_CARE))
		d->flags |= verified(marks);
	if ((d->rule = claimed(marks)))
		add(&q->counts.rx_steered, 1);
	return n;
}

/*
 * describe_run describes packets of one frame from the front of what the driver has brought, as many as there is room
 * for, and returns their number. It ends before a packet that needs more care. What it needs of the queue is in local
 * variables: a store to a byte of owned might change any of it, as far as the compiler knows.
 */
static uint32_t describe_run(struct mrd_queue *q, struct mr_desc *d, uint32_t room, uint32_t stamp, uint64_t *bytes)
{
	const struct mrd_memory *m = q->memory;
	const char *const base = m->base, *const headers = m->headers;
	const uint32_t mbuf_shift = m->mbuf_shift;
	const struct rte_mempool *const pool = q->pool;
	uint8_t *const owned = q->owned;
	struct rte_mbuf *const *const hold = q->hold + q->held_at;
	uint32_t n = RTE_MIN(room, (uint32_t)(q->held - q->held_at)), i;
	uint64_t sum = 0, steered = 0;
	for (i = 0; i < n; i++) {
		const struct rte_mbuf *b = hold[i];
		if (unlikely(b->pool != pool || b->nb_segs != 1 || b->data_len == 0 || (b->ol_flags & RX_CARE)))
			break;
		d[i] = (struct mr_desc){
			.off = (uint32_t)((const char *)b->buf_addr - base) + b->data_off,
			.len = b->data_len,
			.stamp = stamp,
			.rule = claimed(b->ol_flags),
			.flags = verified(b->ol_flags),
		};
		steered += d[i].rule & 1;
		owned[(size_t)((const char *)b - headers) >> mbuf_shift] = 0;
		sum += b->data_len;
	}
	q->held_at = (uint16_t)(q->held_at + i);
	q->owned_n -= i;
	if (unlikely(steered))
		add(&q->counts.rx_steered, steered);
	*bytes += sum;
	return i;
}

/* has_work reports whether a received packet leaves work to its receiver: a checksum that is not filled in, or segments that
 * the device has joined. */
static inline bool has_work(uint64_t ol_flags)
{
	return (ol_flags & RTE_MBUF_F_RX_LRO) || (ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_NONE;
}

/* next_burst receives packets, as many as there are free frames at most: some drivers lose a packet for which they find
 * none. */
static bool next_burst(struct mrd_queue *q, uint32_t room)
{
	uint32_t n = RTE_MIN(RTE_MIN(room, (uint32_t)BURST), q->counts.free);
	q->held_at = 0;
	q->held = n ? rte_eth_rx_burst(q->port, q->id, q->hold, (uint16_t)n) : 0;
	return q->held > 0;
}

/* reclaim asks an idle device for the frames that it has sent. */
static void reclaim(struct mrd_queue *q)
{
	if (q->owned_n - q->counts.free <= q->resting)
		return;
	if (rte_eth_tx_done_cleanup(q->port, q->id, 0) < 0)
		rte_eth_tx_burst(q->port, q->id, NULL, 0);
}

/*
 * mrd_rx appends received packets to d. It ends behind a packet that the device has joined of segments, so that the caller can
 * cut it before others follow.
 */
void mrd_rx(struct mrd_burst *c)
{
	struct mrd_queue *q = c->q;
	struct mr_desc *d = c->d;
	uint32_t room = c->count, most = c->most, stamp = c->stamp, n = 0;
	uint32_t work = 0;
	uint64_t packets = 0, bytes = 0;
	mrd_lend(q, c->lend, c->lent);
	while (q->held_at < q->held || next_burst(q, room - n)) {
		bool full = q->held == BURST;
		while (q->held_at < q->held) {
			uint32_t run = describe_run(q, d + n, room - n, stamp, &bytes);
			n += run;
			packets += run;
			if (q->held_at == q->held)
				break;
			struct rte_mbuf *b = q->hold[q->held_at];
			if (unlikely(b->pool != q->pool)) {
				if (q->counts.free == 0)
					goto out;
				q->hold[q->held_at] = copied(q, b);
				if (!(b = q->hold[q->held_at])) {
					q->held_at++;
					continue;
				}
			}
			if (b->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED)
				rte_vlan_insert(&b); /* the tag belongs in the packet: a descriptor has no place for it */
			uint32_t k = b->nb_segs;
			if (unlikely(k > most || b->pkt_len == 0)) {
				q->held_at++;
				refuse(q, b);
				continue;
			}
			if (k > room - n)
				goto out;
			q->held_at++;
			packets++;
			bytes += b->pkt_len;
			struct rte_mbuf marks = {.ol_flags = b->ol_flags, .tso_segsz = b->tso_segsz};
			uint32_t first = n;
			n += describe_chain(q, b, d + n, stamp);
			if (has_work(marks.ol_flags)) {
				note_work(q, &marks, d + first);
				work = MRD_WORK;
				if (marks.ol_flags & RTE_MBUF_F_RX_LRO)
					goto out;
			}
		}
		if (!full)
			break;
	}
out:
	if (n == 0)
		reclaim(q);
	else {
		add(&q->counts.rx_packets, packets);
		add(&q->counts.rx_bytes, bytes);
	}
	c->moved = n | work;
	c->returned = surplus(q, c->back, c->room);
}

/* tag_bytes returns the length of up to two VLAN tags, which the MTU does not count. */
static uint32_t tag_bytes(const uint8_t *p, uint32_t n)
{
	uint32_t tags = 0;
	for (uint32_t at = 12; at + 4 <= n && tags < 8; at += 4) {
		uint16_t type = (uint16_t)(p[at] << 8 | p[at + 1]);
		if (type != RTE_ETHER_TYPE_VLAN && type != RTE_ETHER_TYPE_QINQ)
			break;
		tags += 4;
	}
	return tags;
}

/* invalid reports whether the device would not send a packet of so many bytes in k frames. Some drivers stop for ever at
 * one that the kernel refuses, so it must not reach them. */
static bool invalid(const struct mrd_queue *q, const struct mr_desc *d, uint32_t k, uint32_t bytes)
{
	if (bytes < RTE_ETHER_HDR_LEN || (k > 1 && !q->chains) || k > MOST_PIECES)
		return true;
	if (likely(bytes <= q->max_frame))
		return false;
	return bytes > q->max_frame + tag_bytes((const uint8_t *)q->memory->base + d->off, d->len);
}

/* moved makes room for the mbuf in a frame whose packet begins where it must lie: the packet moves up. The original
 * offset is kept in back_to, for a packet that the device does not take. */
static bool moved(struct mrd_queue *q, uint32_t off, uint32_t len, uint32_t *now)
{
	uint32_t size = 1u << q->memory->frame_shift, at = off & (size - 1);
	*now = off;
	if (at >= HEADER_END)
		return true;
	if (HEADER_END + len > size)
		return false;
	*now = off - at + (uint32_t)HEADER_END;
	memmove(q->memory->base + *now, q->memory->base + off, len);
	return true;
}

static void unmove(struct mrd_queue *q, const struct mr_desc *d)
{
	uint32_t at = d->off & ((1u << q->memory->frame_shift) - 1);
	if (at < HEADER_END)
		memmove(q->memory->base + d->off, q->memory->base + d->off - at + HEADER_END, d->len);
}

/* enclose makes the mbuf of one frame describe the bytes of d, and the frame the queue's. */
static struct rte_mbuf *enclose(struct mrd_queue *q, const struct mr_desc *d, uint32_t off)
{
	struct mrd_memory *m = q->memory;
	uint32_t frame = off >> m->frame_shift;
	struct rte_mbuf *b = mbuf_of(m, frame);
	if (m->inside) {
		memset(b, 0, sizeof(*b));
		b->buf_addr = (char *)(b + 1);
		rte_mbuf_iova_set(b, (uintptr_t)b->buf_addr);
		b->buf_len = (uint16_t)((1u << m->frame_shift) - HEADER_END);
		rte_mempool_get_header(b)->mp = q->pool;
		rte_mbuf_refcnt_set(b, 1);
		b->nb_segs = 1;
	}
	b->data_off = (uint16_t)(m->base + off - (char *)b->buf_addr);
	b->data_len = d->len;
	b->pkt_len = d->len;
	b->ol_flags = 0;
	b->pool = q->pool;
	q->owned[frame] = 1;
	q->owned_n++;
	return b;
}

/* chain joins the frames of a packet of k descriptors. */
static struct rte_mbuf *chain(struct mrd_queue *q, const struct mr_desc *d, uint32_t k, uint32_t bytes)
{
	struct rte_mbuf *first = enclose(q, d, d->off), *last = first;
	for (uint32_t i = 1; i < k; i++) {
		last->next = enclose(q, d + i, d[i].off);
		last = last->next;
	}
	first->nb_segs = (uint16_t)k;
	first->pkt_len = bytes;
	return first;
}

/* unchain leaves a packet to the caller that the device has not taken. */
static void unchain(struct mrd_queue *q, struct rte_mbuf *b, const struct mr_desc *d)
{
	for (struct rte_mbuf *next; b; b = next) {
		next = b->next;
		b->next = NULL;
		b->nb_segs = 1;
		disown(q, b);
	}
	if (q->memory->inside)
		unmove(q, d);
}

/* out is one burst to be sent. */
struct out {
	struct rte_mbuf *mbuf[BURST];
	uint32_t first[BURST]; /* descriptor of each packet */
	uint32_t n, end;       /* packets, and the descriptor behind the last */
	bool stop;             /* the next packet is invalid */
	bool work;             /* the next packet has work that the device cannot do */
	uint32_t bad, bad_bytes; /* descriptors and bytes of it */
};

/*
 * gather_run makes mbufs of packets of one frame, from the front of d, as many as the burst has room for, and returns
 * their number. It ends before a packet that needs more care, and does nothing where mbufs lie in frames. Local variables
 * as in describe_run.
 */
static uint32_t gather_run(struct mrd_queue *q, const struct mr_desc *d, uint32_t at, uint32_t n, struct out *o)
{
	const struct mrd_memory *m = q->memory;
	char *const headers = m->headers;
	const uint32_t frame_shift = m->frame_shift, max_frame = q->max_frame, inside_frame = (1u << frame_shift) - 1;
	struct rte_mempool *const pool = q->pool;
	uint8_t *const owned = q->owned;
	uint32_t k = RTE_MIN(n - at, BURST - o->n), i;
	if (m->inside)
		return 0;
	for (i = 0; i < k; i++) {
		const struct mr_desc *p = d + at + i;
		if (unlikely((p->flags & (MR_FLAG_MORE | MR_FLAG_OFFLOAD)) || p->len < RTE_ETHER_HDR_LEN || p->len > max_frame))
			break;
		uint32_t frame = p->off >> frame_shift;
		struct rte_mbuf *b = (struct rte_mbuf *)(headers + ((size_t)frame << 7));
		b->data_off = (uint16_t)(p->off & inside_frame);
		b->data_len = p->len;
		b->pkt_len = p->len;
		b->ol_flags = 0;
		b->pool = pool;
		owned[frame] = 1;
		o->first[o->n + i] = at + i;
		o->mbuf[o->n + i] = b;
	}
	o->n += i;
	q->owned_n += i;
	return i;
}

/* gather makes a burst of d[at:n]. It ends before a packet that is not complete or not valid. */
static void gather(struct mrd_queue *q, const struct mr_desc *d, uint32_t at, uint32_t n, struct out *o)
{
	o->n = 0;
	o->stop = o->work = false;
	while (at < n && o->n < BURST) {
		at += gather_run(q, d, at, n, o);
		if (at == n || o->n == BURST)
			break;
		uint32_t k = 1, bytes = d[at].len;
		while (unlikely(d[at + k - 1].flags & MR_FLAG_MORE)) {
			if (at + k == n) {
				o->end = at;
				return;
			}
			bytes += d[at + k++].len;
		}
		uint32_t off = d[at].off;
		if (d[at].flags & MR_FLAG_OFFLOAD) {
			struct rte_mbuf *b = k > MOST_PIECES ? NULL : chain(q, d + at, k, bytes);
			if (!b || !load_work(q, d + at, b)) {
				if (b)
					unchain(q, b, d + at);
				o->work = true;
				break;
			}
			o->first[o->n] = at;
			o->mbuf[o->n++] = b;
			at += k;
			continue;
		}
		if (unlikely(invalid(q, d + at, k, bytes) || (q->memory->inside && !moved(q, off, d[at].len, &off)))) {
			o->stop = true;
			o->bad = k;
			o->bad_bytes = bytes;
			break;
		}
		o->first[o->n] = at;
		o->mbuf[o->n++] = k == 1 ? enclose(q, d + at, off) : chain(q, d + at, k, bytes);
		at += k;
	}
	o->end = at;
}

/* discard takes an invalid packet: its frames are free at once. */
static void discard(struct mrd_queue *q, const struct mr_desc *d, uint32_t k, uint32_t bytes)
{
	mrd_lend(q, &d->off, 1);
	for (uint32_t i = 1; i < k; i++)
		mrd_lend(q, &d[i].off, 1);
	add(&q->counts.tx_invalid, 1);
	add(&q->counts.tx_invalid_bytes, bytes);
}

/*
 * mrd_tx sends packets from the front of d. With MRD_WORK the next packet has work that the device cannot do: the caller does
 * it.
 */
void mrd_tx(struct mrd_burst *c)
{
	struct mrd_queue *q = c->q;
	const struct mr_desc *d = c->d;
	uint32_t n = c->count & ~MRD_UNCOUNTED, at = 0, work = 0;
	uint64_t packets = 0, bytes = 0;
	struct out o;
	adopt(q);
	while (at < n) {
		gather(q, d, at, n, &o);
		uint32_t sent = o.n ? rte_eth_tx_burst(q->port, q->id, o.mbuf, (uint16_t)o.n) : 0;
		for (uint32_t i = sent; i < o.n; i++)
			unchain(q, o.mbuf[i], d + o.first[i]);
		uint32_t end = sent < o.n ? o.first[sent] : o.end;
		packets += sent;
		for (; at < end; at++)
			bytes += d[at].len;
		if (sent < o.n || (!o.stop && !o.work && o.n == 0))
			break;
		if (o.work) {
			work = MRD_WORK;
			break;
		}
		if (o.stop) {
			discard(q, d + at, o.bad, o.bad_bytes);
			at += o.bad;
			packets++;
			bytes += o.bad_bytes;
		}
	}
	if (packets && !(c->count & MRD_UNCOUNTED)) {
		add(&q->counts.tx_packets, packets);
		add(&q->counts.tx_bytes, bytes);
	}
	c->moved = at | work;
	c->returned = surplus(q, c->back, c->room);
}
