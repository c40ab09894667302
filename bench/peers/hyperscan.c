// hyperscan: the literals of a file in the texts of another by Hyperscan, block mode, a text a call.
//
//	hyperscan PATTERNS TEXTS
//
// PATTERNS is a list of { u32 rule; u8 nocase, len; u8 bytes[len] }. TEXTS is a u64, the number of matches
// in all, and a list of { u32 len; u8 bytes[len] }. kernbench.WriteLiterals writes both. All texts are searched
// once, and the matches counted, before the run; an end of a rule is one match, however it came about.
#include "peer.h"
#include <hs/hs.h>

struct bytes {
	u8 *at;
	u64 len;
};

struct text {
	const char *at;
	u32 len;
};

static void refuse(const char *what, u64 n) {
	fprintf(stderr, "hyperscan: %s: %lu\n", what, n);
	exit(1);
}

static struct bytes read_all(const char *path) {
	FILE *f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END))
		die(path);
	struct bytes b = {.len = ftell(f)};
	rewind(f);
	b.at = malloc(b.len + 1);
	if (!b.at || fread(b.at, 1, b.len, f) != b.len)
		die(path);
	fclose(f);
	return b;
}

static hs_database_t *compile(struct bytes in) {
	const char **lit = calloc(in.len, sizeof *lit);
	size_t *len = calloc(in.len, sizeof *len);
	u32 *flag = calloc(in.len, sizeof *flag), *rule = calloc(in.len, sizeof *rule), n = 0;
	if (!lit || !len || !flag || !rule)
		die("memory");
	for (u64 at = 0; at < in.len; n++) {
		memcpy(&rule[n], in.at + at, 4);
		flag[n] = in.at[at + 4] ? HS_FLAG_CASELESS : 0;
		len[n] = in.at[at + 5];
		lit[n] = (const char *)in.at + at + 6;
		at += 6 + len[n];
	}
	hs_database_t *db;
	hs_compile_error_t *err;
	if (hs_compile_lit_multi(lit, flag, rule, len, n, HS_MODE_BLOCK, NULL, &db, &err))
		refuse(err->message, n);
	return db;
}

// split finds the texts behind the number of matches.
static u32 split(struct bytes in, struct text **all) {
	u32 n = 0, len;
	*all = calloc(in.len / 4 + 1, sizeof **all);
	if (!*all)
		die("memory");
	for (u64 at = 8; at < in.len; at += 4 + len, n++) {
		memcpy(&len, in.at + at, 4);
		(*all)[n] = (struct text){(const char *)in.at + at + 4, len};
	}
	return n;
}

static int matched(u32 rule, unsigned long long from, unsigned long long to, u32 flags, void *n) {
	(void)rule, (void)from, (void)to, (void)flags;
	++*(u64 *)n;
	return 0;
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	struct bytes patterns = read_all(argv[1]), texts = read_all(argv[2]);
	u64 start = clock_ns(CLOCK_MONOTONIC), matches = 0, want;
	hs_database_t *db = compile(patterns);
	double took = (clock_ns(CLOCK_MONOTONIC) - start) / 1e9;
	hs_scratch_t *scratch = NULL;
	size_t size;
	if (hs_alloc_scratch(db, &scratch) || hs_database_size(db, &size))
		refuse("scratch", 0);
	struct text *all;
	u32 n = split(texts, &all);
	memcpy(&want, texts.at, 8);
	for (u32 i = 0; i < n; i++)
		if (hs_scan(db, all[i].at, all[i].len, 0, scratch, matched, &matches))
			refuse("hs_scan of text", i);
	if (matches != want)
		refuse("matches", matches);
	char version[128];
	snprintf(version, sizeof version, "%s, compiled in %.2f s, %.1f MB", hs_version(), took, size / 1e6);
	ready(version);
	for (u32 i = 0; !stopped; i = i + 1 < n ? i + 1 : 0) {
		hs_scan(db, all[i].at, all[i].len, 0, scratch, matched, &matches);
		count.bytes += all[i].len;
		count.packets++;
	}
	print_counters(1);
	return 0;
}
