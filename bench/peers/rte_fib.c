// rte_fib: look-ups of the addresses of a file, on one core: DIR-24-8 for IPv4, the trie for IPv6, by the
// fastest function that the machine runs.
//
//	rte_fib FILE
#include "rte_table.h"
#include <rte_fib.h>
#include <rte_fib6.h>

struct entry {
	u64 hi, lo; // an IPv4 address lies in the upper half of hi
	u32 bits, hop;
};

struct question {
	u64 hi, lo;
	u32 want, pad;
};

static struct rte_fib *fib4;
static struct rte_fib6 *fib6;
static u32 *ips4;
static u8 (*ips6)[RTE_FIB6_IPV6_ADDR_SIZE];

static void bytes(u64 hi, u64 lo, u8 *out) {
	u64 w[2] = {__builtin_bswap64(hi), __builtin_bswap64(lo)};
	memcpy(out, w, 16);
}

static void compile4(const struct file_head *h, const struct entry *e, u32 groups) {
	struct rte_fib_conf c = {.type = RTE_FIB_DIR24_8, .max_routes = h->entries + 1,
		.dir24_8 = {.nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = groups}};
	fib4 = rte_fib_create("fib", SOCKET_ID_ANY, &c);
	if (!fib4)
		refuse("rte_fib_create", 0);
	for (u32 i = 0; i < h->entries; i++)
		if (rte_fib_add(fib4, e[i].hi >> 32, e[i].bits, e[i].hop))
			refuse("rte_fib_add", i);
}

static void compile6(const struct file_head *h, const struct entry *e, u32 groups) {
	struct rte_fib6_conf c = {.type = RTE_FIB6_TRIE, .max_routes = h->entries + 1,
		.trie = {.nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = groups}};
	u8 ip[16];
	fib6 = rte_fib6_create("fib6", SOCKET_ID_ANY, &c);
	if (!fib6)
		refuse("rte_fib6_create", 0);
	for (u32 i = 0; i < h->entries; i++) {
		bytes(e[i].hi, e[i].lo, ip);
		if (rte_fib6_add(fib6, ip, e[i].bits, e[i].hop))
			refuse("rte_fib6_add", i);
	}
}

static void ask(u32 at, u64 *hops, u32 n) {
	if (fib4)
		rte_fib_lookup_bulk(fib4, ips4 + at, hops, n);
	else
		rte_fib6_lookup_bulk(fib6, ips6 + at, hops, n);
}

static u64 check(const struct question *q, u32 n, u64 *hops) {
	u64 start = clock_ns(CLOCK_MONOTONIC);
	for (u32 i = 0; i + BURST <= n; i += BURST) {
		ask(i, hops, BURST);
		for (u32 k = 0; k < BURST; k++)
			if (hops[k] != q[i + k].want)
				refuse("a wrong answer to question", i + k);
	}
	return clock_ns(CLOCK_MONOTONIC) - start;
}

// select_vector takes the AVX-512 form where it is the faster one.
static const char *fastest(const struct question *q, u32 n, u64 *hops) {
	u64 scalar, vector;
	if (fib4)
		rte_fib_select_lookup(fib4, RTE_FIB_LOOKUP_DIR24_8_SCALAR_INLINE);
	else
		rte_fib6_select_lookup(fib6, RTE_FIB6_LOOKUP_TRIE_SCALAR);
	check(q, n, hops);
	scalar = check(q, n, hops);
	if (fib4 ? rte_fib_select_lookup(fib4, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512)
		 : rte_fib6_select_lookup(fib6, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512))
		return "scalar (no AVX-512)";
	check(q, n, hops);
	vector = check(q, n, hops);
	if (vector <= scalar)
		return "AVX-512";
	if (fib4)
		rte_fib_select_lookup(fib4, RTE_FIB_LOOKUP_DIR24_8_SCALAR_INLINE);
	else
		rte_fib6_select_lookup(fib6, RTE_FIB6_LOOKUP_TRIE_SCALAR);
	return "scalar, faster here than AVX-512";
}

int main(int argc, char **argv) {
	if (argc != 2)
		return 2;
	const struct file_head *h = map_file(argv[1]);
	const struct entry *e = (const void *)(h + 1);
	const struct question *q = (const void *)(e + h->entries);
	static u64 hops[BURST];
	start_eal(argv[0], "4096");
	u64 start = clock_ns(CLOCK_MONOTONIC);
	if (h->family == 4)
		compile4(h, e, (1 << 15) - 1);
	else
		compile6(h, e, 1 << 19);
	double took = seconds_since(start);
	ips4 = array(h->questions, sizeof *ips4);
	ips6 = array(h->questions, sizeof *ips6);
	for (u32 i = 0; i < h->questions; i++) {
		ips4[i] = q[i].hi >> 32;
		bytes(q[i].hi, q[i].lo, ips6[i]);
	}
	tell(fastest(q, h->questions, hops), took);
	while (!stopped)
		for (u32 i = 0; i + BURST <= h->questions && !stopped; i += BURST) {
			ask(i, hops, BURST);
			count.packets += BURST;
		}
	print_counters(1);
	return 0;
}
