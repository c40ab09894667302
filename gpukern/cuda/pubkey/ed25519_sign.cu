/* Signatures of Ed25519 (RFC 8032 5.1.6). The host hashes: r from the key and the message, and then, with R, k. So a
 * signature has two kernels: pk_ed25519_commit makes R = rB, and pk_ed25519_respond s = r + ka. pk_ed25519 verifies. */
#include "edwards25519.cuh"

enum { PK_ED25519_THREADS = 128, ED_ENTRIES = 16, ED_WINDOWS = 64, ED_ENTRY = 3 * FE };

struct pk_ed25519_commit {
	const u32 *hashes;    /* 64 bytes each: r, before its reduction */
	const u32 *generator; /* entry e of window w: y + x, y - x and 2dxy of e * 16^w * B */
	u32 *points;          /* 32 bytes: R */
	u32 n;
};

struct pk_ed25519_respond {
	const u32 *hashes;     /* 64 bytes each: r */
	const u32 *challenges; /* 64 bytes: k */
	const u64 *keys;       /* where the scalar a is, times 2^256 modulo the order */
	const u32 *points;     /* 32 bytes: R */
	u32 *signatures;       /* 64 bytes */
	u32 n;
};

/* ge_choose sets q to an entry of a window of the generator's table, of which it reads all. */
GK_FN void ge_choose(ge_entry *q, const u32 *window, u32 entry)
{
	u32 v[ED_ENTRY], t[ED_ENTRY];
	pk_zero<ED_ENTRY>(v);
	PK_LOOP
	for (u32 e = 0; e < ED_ENTRIES; e++) {
		u32 mask = pk_equal(e, entry);
		pk_load<ED_ENTRY>(t, window + e * ED_ENTRY);
		PK_UNROLL
		for (int j = 0; j < ED_ENTRY; j++)
			v[j] |= t[j] & mask;
	}
	pk_copy<FE>(q->sum, v);
	pk_copy<FE>(q->difference, v + FE);
	pk_copy<FE>(q->t, v + 2 * FE);
}

GK_KERNEL(pk_ed25519_commit, struct pk_ed25519_commit, PK_ED25519_THREADS)
{
	u32 i = gk_global_thread();
	if (i >= p->n)
		return;
	struct {
		ge_point sum;
		ge_entry entry;
		ge_work work;
		u32 r[8];
	} s;
	sc_reduce(s.r, p->hashes + i * 16);
	ge_neutral(&s.sum);
	pk_zero<FE>(s.entry.z);
	s.entry.z[0] = 2;
	PK_LOOP
	for (u32 w = 0; w < ED_WINDOWS; w++) {
		ge_choose(&s.entry, p->generator + w * ED_ENTRIES * ED_ENTRY, s.r[w / 8] >> w % 8 * 4 & 15);
		ge_add(&s.sum, &s.entry, &s.work);
	}
	ge_encode(s.r, &s.sum);
	pk_store<8>(p->points + i * 8, s.r);
	pk_wipe((u32 *)&s, sizeof s / 4);
}

GK_KERNEL(pk_ed25519_respond, struct pk_ed25519_respond, PK_ED25519_THREADS)
{
	u32 i = gk_global_thread();
	if (i >= p->n)
		return;
	u32 r[8], k[8], point[8];
	sc_reduce(r, p->hashes + i * 16);
	sc_reduce(k, p->challenges + i * 16);
	sc_mul(k, k, (const u32 *)gk_load_u64(&p->keys[i]));
	pk_add_mod<8>(r, r, k, ge_order());
	pk_load<8>(point, p->points + i * 8);
	pk_store<8>(p->signatures + i * 16, point);
	pk_store<8>(p->signatures + i * 16 + 8, r);
	pk_wipe(k, 8);
	pk_wipe(r, 8);
}
