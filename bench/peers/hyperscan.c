// hyperscan: the literals of a file in the texts of another by Hyperscan, on one core, block mode.
//
//	hyperscan PATTERNS TEXTS SECONDS
//
// PATTERNS is a list of { u32 rule; u8 nocase, len; u8 bytes[len] }, TEXTS of { u32 len; u8 bytes[len] },
// little-endian. The program scans all texts again and again for the time given and prints one line of
// JSON: what it took at best, and how many matches there are in all, each end of a rule counted once.
#include <hs/hs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

struct bytes { u8 *at; size_t len; };
struct text { const char *at; u32 len; };

static void die(const char *what) {
	fprintf(stderr, "hyperscan: %s\n", what);
	exit(1);
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
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
	unsigned *flag = calloc(in.len, sizeof *flag), *rule = calloc(in.len, sizeof *rule), n = 0;
	for (size_t at = 0; at < in.len; n++) {
		memcpy(&rule[n], in.at + at, 4);
		flag[n] = in.at[at + 4] ? HS_FLAG_CASELESS : 0;
		len[n] = in.at[at + 5];
		lit[n] = (char *)in.at + at + 6;
		at += 6 + len[n];
	}
	hs_database_t *db;
	hs_compile_error_t *err;
	if (hs_compile_lit_multi(lit, flag, rule, len, n, HS_MODE_BLOCK, NULL, &db, &err))
		die(err->message);
	return db;
}

static u32 split(struct bytes in, struct text **all, u64 *total) {
	u32 n = 0, len;
	*all = calloc(in.len / 4 + 1, sizeof **all);
	*total = 0;
	for (size_t at = 0; at < in.len; at += 4 + len, n++) {
		memcpy(&len, in.at + at, 4);
		(*all)[n] = (struct text){(char *)in.at + at + 4, len};
		*total += len;
	}
	return n;
}

static int count(unsigned rule, unsigned long long from, unsigned long long to, unsigned flags, void *n) {
	(void)rule, (void)from, (void)to, (void)flags;
	++*(u64 *)n;
	return 0;
}

int main(int argc, char **argv) {
	if (argc != 4)
		die("hyperscan PATTERNS TEXTS SECONDS");
	double start = now();
	hs_database_t *db = compile(read_all(argv[1]));
	double compiled = now() - start, best = 1e30;
	hs_scratch_t *scratch = NULL;
	if (hs_alloc_scratch(db, &scratch))
		die("no scratch");
	size_t size;
	hs_database_size(db, &size);
	struct text *all;
	u64 total, matches;
	u32 n = split(read_all(argv[2]), &all, &total);
	double end = now() + atof(argv[3]);
	do {
		matches = 0;
		double t = now();
		for (u32 i = 0; i < n; i++)
			if (hs_scan(db, all[i].at, all[i].len, 0, scratch, count, &matches))
				die("hs_scan");
		t = now() - t;
		best = t < best ? t : best;
	} while (now() < end);
	printf("{\"bytes\":%llu,\"texts\":%u,\"matches\":%llu,\"seconds\":%.9f,\"compile\":%.6f,\"size\":%zu}\n",
	       (unsigned long long)total, n, (unsigned long long)matches, best, compiled, size);
}
