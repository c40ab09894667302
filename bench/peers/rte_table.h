// Shared by the peers that are made of libdpdk: its start without devices, huge pages or files, the
// file with a table and questions, and a run over the questions without end.
//
// A file is written by bench/tables_file.go: a struct file_head, the entries, the questions. Every
// question carries the answer that is wanted; all are asked once, and compared, before the run.
#ifndef RTE_TABLE_H
#define RTE_TABLE_H

#include "peer.h"
#include <fcntl.h>
#include <rte_eal.h>
#include <rte_memory.h>
#include <rte_version.h>
#include <sched.h>
#include <sys/stat.h>

enum { BURST = 256 }; // questions a call: packet.BatchSize

struct file_head {
	u32 family;            // 4 or 6
	u32 entries, questions;
	u32 pad;
};

static struct file_head *map_file(const char *path) {
	int fd = open(path, O_RDONLY);
	struct stat s;
	if (fd < 0 || fstat(fd, &s))
		die(path);
	void *p = mmap(NULL, s.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		die(path);
	close(fd);
	return p;
}

static void refuse(const char *what, long code) {
	fprintf(stderr, "%s: %ld\n", what, code);
	exit(1);
}

// huge asks for transparent huge pages: reserved ones may not be there, and tables of many megabytes
// are the faster for them.
static int huge(const struct rte_memseg_list *msl, const struct rte_memseg *ms, size_t len, void *unused) {
	(void)msl;
	(void)unused;
	madvise(ms->addr, len, MADV_HUGEPAGE);
	return 0;
}

static void start_eal(char *name, char *megabytes) {
	char cpu[16];
	snprintf(cpu, sizeof cpu, "%d", sched_getcpu());
	char *argv[] = {
		name, "--no-huge", "--no-pci", "--no-telemetry", "--no-shconf", "--log-level=error",
		"--force-max-simd-bitwidth=512", "-m", megabytes, "-l", cpu, NULL,
	};
	if (rte_eal_init(sizeof argv / sizeof *argv - 1, argv) < 0)
		refuse("rte_eal_init", 0);
	rte_memseg_contig_walk(huge, NULL);
}

static void *array(u64 n, u64 size) {
	void *p = aligned_alloc(2 << 20, (n * size + (2 << 20)) / (2 << 20) * (2 << 20));
	if (!p)
		die("memory");
	madvise(p, n * size, MADV_HUGEPAGE);
	return p;
}

static double seconds_since(u64 start) { return (clock_ns(CLOCK_MONOTONIC) - start) / 1e9; }

// tell says that the table is made and gives right answers.
static void tell(const char *what, double compile) {
	char version[128];
	snprintf(version, sizeof version, "%s, %s, compiled in %.2f s", rte_version(), what, compile);
	ready(version);
}

#endif
