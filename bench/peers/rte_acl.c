// rte_acl: rte_acl_classify over the questions of a file, on one core, with AVX-512.
//
//	rte_acl FILE
#include "rte_table.h"
#include <rte_acl.h>

struct entry {
	u32 src, dst;
	u16 sport[2], dport[2];
	u8 src_bits, dst_bits, proto, pad; // protocol 0 is any
};

struct question {
	u32 src, dst;
	u16 sport, dport, want;
	u8 proto, pad;
};

// key is what rte_acl reads: big-endian, a byte first, then words of four bytes.
struct key {
	u8 proto, pad[3];
	u32 src, dst;
	u16 sport, dport;
};

enum { PROTO, SRC, DST, SPORT, DPORT, FIELDS };
RTE_ACL_RULE_DEF(rule, FIELDS);

static struct rte_acl_field_def fields[FIELDS] = {
	{RTE_ACL_FIELD_TYPE_BITMASK, 1, PROTO, 0, offsetof(struct key, proto)},
	{RTE_ACL_FIELD_TYPE_MASK, 4, SRC, 1, offsetof(struct key, src)},
	{RTE_ACL_FIELD_TYPE_MASK, 4, DST, 2, offsetof(struct key, dst)},
	{RTE_ACL_FIELD_TYPE_RANGE, 2, SPORT, 3, offsetof(struct key, sport)},
	{RTE_ACL_FIELD_TYPE_RANGE, 2, DPORT, 3, offsetof(struct key, dport)},
};

static void add(struct rte_acl_ctx *ctx, const struct entry *e, u32 place) {
	struct rule r = {.data = {.category_mask = 1, .priority = RTE_ACL_MAX_PRIORITY - place, .userdata = place + 1}};
	r.field[PROTO].value.u8 = e->proto;
	r.field[PROTO].mask_range.u8 = e->proto ? 0xff : 0;
	r.field[SRC].value.u32 = e->src;
	r.field[SRC].mask_range.u32 = e->src_bits;
	r.field[DST].value.u32 = e->dst;
	r.field[DST].mask_range.u32 = e->dst_bits;
	r.field[SPORT].value.u16 = e->sport[0];
	r.field[SPORT].mask_range.u16 = e->sport[1];
	r.field[DPORT].value.u16 = e->dport[0];
	r.field[DPORT].mask_range.u16 = e->dport[1];
	int code = rte_acl_add_rules(ctx, (struct rte_acl_rule *)&r, 1);
	if (code)
		refuse("rte_acl_add_rules", code);
}

static struct rte_acl_ctx *compile(const struct file_head *h) {
	struct rte_acl_param p = {.name = "acl", .socket_id = SOCKET_ID_ANY, .rule_size = RTE_ACL_RULE_SZ(FIELDS), .max_rule_num = h->entries};
	struct rte_acl_config c = {.num_categories = 1, .num_fields = FIELDS};
	struct rte_acl_ctx *ctx = rte_acl_create(&p);
	const struct entry *e = (const void *)(h + 1);
	if (!ctx)
		refuse("rte_acl_create", 0);
	for (u32 i = 0; i < h->entries; i++)
		add(ctx, &e[i], i);
	memcpy(c.defs, fields, sizeof fields);
	int code = rte_acl_build(ctx, &c);
	if (code)
		refuse("rte_acl_build", code);
	code = rte_acl_set_ctx_classify(ctx, RTE_ACL_CLASSIFY_AVX512X32);
	if (code)
		refuse("AVX-512", code);
	return ctx;
}

int main(int argc, char **argv) {
	if (argc != 2)
		return 2;
	const struct file_head *h = map_file(argv[1]);
	start_eal(argv[0], "1024");
	u64 start = clock_ns(CLOCK_MONOTONIC);
	struct rte_acl_ctx *ctx = compile(h);
	double took = seconds_since(start);
	const struct question *q = (const void *)((const struct entry *)(h + 1) + h->entries);
	struct key *keys = array(h->questions, sizeof *keys);
	const u8 **at = array(h->questions, sizeof *at);
	u32 *found = array(h->questions, sizeof *found);
	for (u32 i = 0; i < h->questions; i++) {
		keys[i] = (struct key){q[i].proto, {0}, htonl(q[i].src), htonl(q[i].dst), htons(q[i].sport), htons(q[i].dport)};
		at[i] = (const u8 *)&keys[i];
	}
	rte_acl_classify(ctx, at, found, h->questions, 1);
	for (u32 i = 0; i < h->questions; i++)
		if (found[i] != q[i].want)
			refuse("a wrong answer to question", i);
	tell("AVX512X32", took);
	while (!stopped)
		for (u32 i = 0; i + BURST <= h->questions && !stopped; i += BURST) {
			rte_acl_classify(ctx, at + i, found, BURST, 1);
			count.packets += BURST;
		}
	print_counters(1);
	return 0;
}
