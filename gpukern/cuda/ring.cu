/* The persistent kernel: each block waits for batches in its slot (ring.h) and does the header pass over
 * them. It ends by itself, soon and always: after its lifetime, when told to, and when the host falls
 * silent; so a process that dies or stands still leaves a free device behind. The host queues the next
 * launch before the present one ends, and a batch that came in between is the next one's. */
#include "headers.cuh"
#include "ring.h"

enum { GK_RING_WAIT, GK_RING_WORK, GK_RING_END };

/* How a block waits: the longer the less often it looks, down to a look in half a microsecond. A look is
 * a read over the bus, which takes a microsecond by itself. */
enum { GK_RING_PAUSE_NS = 200 };

/* How many looks there are to one at the clock. */
enum { GK_RING_LOOKS = 8 };

/* What warp 0 has read, for the block: the batch's words and what the host says. */
struct gk_ring_seen {
	struct gk_quad word[GK_RING_WORDS + 1];
	u32 verdict;
};

/* What a block remembers of time, in its first thread. */
struct gk_ring_life {
	u64 born, heard, told; /* when it began, when the host's beat changed last, when it last told its own */
	u32 host, beat;        /* the host's beat and its own */
};

/* gk_ring_look reads the host's words by one request. */
GK_FN void gk_ring_look(const struct gk_ring_slot *s, struct gk_ring_seen *seen)
{
	u32 lane = gk_lane();
	if (lane <= GK_RING_WORDS)
		seen->word[lane] = gk_load_quad(gk_fresh((const u8 *)s + 16 * lane));
	gk_warp_sync();
}

/* gk_ring_over reports whether the block is to end. */
GK_FN int gk_ring_over(const struct gk_ring *r, struct gk_ring_life *l, u32 alive, u64 now)
{
	if (alive != l->host) {
		l->host = alive;
		l->heard = now;
	}
	return now - l->born >= r->lifetime || now - l->heard >= r->patience;
}

/* gk_ring_tell lets the host see that the block lives. */
GK_FN void gk_ring_tell(struct gk_ring_slot *s, struct gk_ring_life *l, u64 now)
{
	if (now - l->told < GK_RING_BEAT_NS)
		return;
	l->told = now;
	gk_store_release(&s->beat, ++l->beat);
}

/* gk_ring_judge says what follows from a look, of so many. Lane 0 does so for its warp: lanes may read
 * different times. */
GK_FN u32 gk_ring_judge(const struct gk_ring *r, struct gk_ring_slot *s, struct gk_ring_life *l,
			const struct gk_ring_seen *seen, u32 want, u32 looks)
{
	const u32 *host = seen->word[GK_RING_WORDS].w;
	if (host[0] != 0)
		return GK_RING_END;
	if (looks % GK_RING_LOOKS == 0) {
		u64 now = gk_clock();
		if (gk_ring_over(r, l, host[1], now))
			return GK_RING_END;
		gk_ring_tell(s, l, now);
	}
	for (u32 i = 0; i < GK_RING_WORDS; i++)
		if (seen->word[i].w[0] != want)
			return GK_RING_WAIT;
	return GK_RING_WORK;
}

/* gk_ring_wait is run by warp 0 until batch want is there, or the block is to end. */
GK_FN u32 gk_ring_wait(const struct gk_ring *r, struct gk_ring_slot *s, struct gk_ring_life *l,
		       struct gk_ring_seen *seen, u32 want)
{
	for (u32 looks = 0;; looks++) {
		gk_ring_look(s, seen);
		u32 verdict = gk_lane() == 0 ? gk_ring_judge(r, s, l, seen, want, looks) : GK_RING_WAIT;
		verdict = gk_shfl(verdict, 0);
		if (verdict != GK_RING_WAIT) {
			gk_fence_acquire(); /* the batch, and tables that lie where others lay */
			return verdict;
		}
		gk_pause(gk_min(looks, GK_RING_PAUSE_NS));
	}
}

/* gk_ring_serve does the work that was read, by the whole block, and returns its status. */
GK_FN u32 gk_ring_serve(const struct gk_ring *r, const struct gk_ring_seen *seen)
{
	const u32 *a = seen->word[0].w, *b = seen->word[1].w;
	u64 desc = (u64)a[3] << 32 | a[2], tables = (u64)b[3] << 32 | b[2];
	struct gk_pass p = {};
	p.mem = r->mem;
	p.size = r->size;
	p.desc = (struct mr_desc *)desc;
	p.tables = (const struct gk_tables *)tables;
	p.state = r->state;
	p.n = a[1] & 0xffff;
	p.ops = a[1] >> 16;
	p.shift = r->shift;
	p.epoch = b[1];
	p.generation = seen->word[2].w[1];
	if (p.n > GK_RING_MAX)
		return GK_RING_BAD_COUNT;
	if (p.ops == 0) /* a batch to measure the ring by */
		return GK_RING_OK;
	if (desc == 0 || desc % 16 != 0 || tables == 0)
		return GK_RING_BAD_ADDRESS;
	for (u32 first = gk_thread() / GK_WARP * GK_WARP; first < p.n; first += gk_block_size())
		gk_headers_warp(&p, first);
	return GK_RING_OK;
}

/* gk_ring_finish hands the batch back. What all threads wrote is there before the number is: the barrier
 * orders it before thread 0's release, which is of the whole system. */
GK_FN void gk_ring_finish(struct gk_ring_slot *s, u32 seq, u32 status)
{
	gk_block_sync();
	if (gk_thread() != 0)
		return;
	*(volatile u32 *)&s->status = status;
	gk_store_release(&s->done, seq);
}

GK_KERNEL(gk_ring, struct gk_ring, GK_RING_MAX)
{
	GK_SHARED struct gk_ring_seen seen;
	struct gk_ring_slot *s = &p->slots[gk_block()];
	struct gk_ring_life life = {};
	life.born = life.heard = life.told = gk_clock();
	life.beat = gk_load_u32(&s->beat);
	for (u32 want = gk_load_u32(&s->done) + 1;; want++) {
		if (gk_thread() < GK_WARP)
			seen.verdict = gk_ring_wait(p, s, &life, &seen, want);
		gk_block_sync();
		if (seen.verdict == GK_RING_END)
			break;
		gk_ring_finish(s, want, gk_ring_serve(p, &seen));
	}
	if (gk_thread() == 0)
		gk_store_release(&s->ended, p->launch);
}

/* gk_mark says that all that was launched before it on its stream is done: one store in memory that the
 * host polls. */
struct gk_mark {
	u32 *word;
	u32 value;
};

GK_KERNEL(gk_mark, struct gk_mark, 32)
{
	if (gk_thread() != 0)
		return;
	gk_store_release(p->word, p->value);
}
