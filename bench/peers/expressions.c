// expressions: the regular expressions of a file in pieces of a text by Hyperscan, block mode, each expression once in a piece: what
// gpukern/expression finds in streams of that size.
//
//	expressions PATTERNS PIECE_BYTES THREADS SECONDS TEXT...
//
// PATTERNS has lines /EXPRESSION/[imsx]; those that Hyperscan refuses are counted and left out. A piece is a call, and the threads
// take pieces in turn. Prints a line of JSON for each text on one thread, and one on all.
#include "peer.h"
#include <hs/hs.h>
#include <pthread.h>

enum { MOST = 1 << 16, MOST_THREADS = 256 };

static hs_database_t *db;
static const char *text;
static u64 text_len, piece_len;
static double seconds;
static u64 bytes, matches, next;

static u32 flags_of(const char *at) {
	u32 f = HS_FLAG_SINGLEMATCH | HS_FLAG_ALLOWEMPTY;
	for (; *at; at++)
		f |= *at == 'i' ? HS_FLAG_CASELESS : *at == 'm' ? HS_FLAG_MULTILINE : *at == 's' ? HS_FLAG_DOTALL : 0;
	return f;
}

static int matched(u32 id, unsigned long long from, unsigned long long to, u32 flags, void *n) {
	(void)id, (void)from, (void)to, (void)flags;
	++*(u64 *)n;
	return 0;
}

static void *search(void *arg) {
	hs_scratch_t *scratch = NULL;
	u64 n = text_len / piece_len, end = clock_ns(CLOCK_MONOTONIC) + seconds * 1e9, mine = 0, found = 0;
	(void)arg;
	if (hs_alloc_scratch(db, &scratch))
		exit(1);
	while (clock_ns(CLOCK_MONOTONIC) < end) {
		u64 i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % n;
		if (hs_scan(db, text + i * piece_len, piece_len, 0, scratch, matched, &found))
			exit(1);
		mine += piece_len;
	}
	__atomic_fetch_add(&bytes, mine, __ATOMIC_RELAXED);
	__atomic_fetch_add(&matches, found, __ATOMIC_RELAXED);
	return NULL;
}

// supported reports whether Hyperscan compiles an expression.
static int supported(const char *expr, u32 flag) {
	hs_compile_error_t *err;
	hs_database_t *one;
	if (hs_compile(expr, flag, HS_MODE_BLOCK, NULL, &one, &err))
		return hs_free_compile_error(err), 0;
	return hs_free_database(one), 1;
}

static void read_text(const char *path) {
	FILE *f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END))
		die(path);
	text_len = ftell(f), rewind(f);
	char *mem = malloc(text_len);
	if (!mem || text_len < piece_len || fread(mem, 1, text_len, f) != text_len)
		die(path);
	fclose(f);
	text = mem;
}

// run returns the bytes a second of some threads.
static double run(u32 threads) {
	pthread_t all[MOST_THREADS];
	bytes = matches = next = 0;
	u64 start = clock_ns(CLOCK_MONOTONIC);
	for (u32 i = 0; i < threads; i++)
		if (pthread_create(&all[i], NULL, search, NULL))
			die("threads");
	for (u32 i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
	return bytes / ((clock_ns(CLOCK_MONOTONIC) - start) / 1e9);
}

int main(int argc, char **argv) {
	static const char *expr[MOST];
	static u32 flag[MOST], id[MOST];
	static char line[1 << 16];
	u32 n = 0, refused = 0, threads;
	if (argc < 6)
		return 2;
	FILE *f = fopen(argv[1], "r");
	while (f && n < MOST && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		char *end = strrchr(line, '/');
		if (*line != '/' || !end || end == line)
			continue;
		*end = 0;
		if (!supported(line + 1, flags_of(end + 1))) {
			refused++;
			continue;
		}
		flag[n] = flags_of(end + 1), id[n] = n, expr[n] = strdup(line + 1), n++;
	}
	piece_len = strtoul(argv[2], NULL, 10), threads = atoi(argv[3]), seconds = atof(argv[4]);
	if (piece_len == 0 || threads < 1 || threads > MOST_THREADS)
		return 2;
	u64 start = clock_ns(CLOCK_MONOTONIC);
	hs_compile_error_t *err;
	if (hs_compile_multi(expr, flag, id, n, HS_MODE_BLOCK, NULL, &db, &err)) {
		fprintf(stderr, "expressions: %s\n", err->message);
		return 1;
	}
	double compiled = (clock_ns(CLOCK_MONOTONIC) - start) / 1e9;
	for (int i = 5; i < argc; i++) {
		read_text(argv[i]);
		for (u32 t = 1;; t = threads) {
			double rate = run(t);
			printf("{\"version\": \"%s\", \"expressions\": %u, \"refused\": %u, \"compile_seconds\": %.2f, \"text\": \"%s\", \"threads\": %u, "
			       "\"bytes_per_second\": %.0f, \"matches_per_piece\": %.2f}\n",
			       hs_version(), n, refused, compiled, argv[i], t, rate, (double)matches / (bytes / piece_len));
			if (t == threads)
				break;
		}
	}
	return 0;
}
