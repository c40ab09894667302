// Shared by the C peers: the counters, the line protocol and the probe packet.
//
// A peer prints one JSON line when it is ready, one with its counters for every line that it reads
// from stdin, and a last one, with "final":true, after stdin has ended. bench/process.go is the
// other side.
#ifndef PEER_H
#define PEER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

enum {
	SEQ_AT = 42,        // the sequence number lies behind Ethernet, IPv4 and UDP
	MIN_LEN = SEQ_AT + 8,
	SLEEP_NS = 20000,   // how long a receiver sleeps that finds nothing
};

// The main thread writes these, the control thread reads them: each is one aligned word.
static struct {
	volatile u64 packets, bytes, gaps, reordered, next, wakeups, dropped;
} count;

static volatile int stopped;

// Where a peer measures its own CPU time, in nanoseconds; NULL is that of the process.
static volatile u64 *cpu_measured;

static void die(const char *what) {
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static u64 clock_ns(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return (u64)t.tv_sec * 1000000000u + t.tv_nsec;
}

static void print_counters(int final) {
	printf("{\"ns\":%lu,\"cpu_ns\":%lu,\"final\":%s,\"counts\":{\"packets\":%lu,\"bytes\":%lu,\"gaps\":%lu,"
	       "\"reordered\":%lu,\"wakeups\":%lu,\"dropped\":%lu}}\n",
	       clock_ns(CLOCK_MONOTONIC), cpu_measured ? *cpu_measured : clock_ns(CLOCK_PROCESS_CPUTIME_ID), final ? "true" : "false", count.packets, count.bytes, count.gaps,
	       count.reordered, count.wakeups, count.dropped);
	fflush(stdout);
}

static void *control_loop(void *unused) {
	char line[64];
	while (fgets(line, sizeof line, stdin))
		print_counters(0);
	stopped = 1;
	return unused;
}

// ready tells the harness to go on and starts to answer it.
static inline void ready(const char *version) {
	pthread_t t;
	prctl(PR_SET_TIMERSLACK, 1);
	printf("{\"ready\":true,\"version\":\"%s\"}\n", version);
	fflush(stdout);
	if (pthread_create(&t, NULL, control_loop, NULL))
		die("pthread_create");
}

// saw counts a received packet and checks its sequence number: a hole is a gap, a step back or a
// repetition is a reordering.
static inline void saw(const u8 *p, u32 len) {
	u64 seq;
	if (len < MIN_LEN)
		return;
	memcpy(&seq, p + SEQ_AT, 8);
	if (seq >= count.next) {
		count.gaps += seq - count.next;
		count.next = seq + 1;
	} else {
		count.reordered++;
	}
	count.packets++;
	count.bytes += len;
}

static inline void stamp(u8 *p, u64 seq) { memcpy(p + SEQ_AT, &seq, 8); }

static inline void swap_mac(u8 *p) {
	u8 t[6];
	memcpy(t, p, 6);
	memcpy(p, p + 6, 6);
	memcpy(p + 6, t, 6);
}

// probe writes the packet that every sender sends: UDP without a checksum to a link address that
// is nobody's, so that a kernel that sees it drops it at once.
static inline void probe(u8 *p, u32 len) {
	static const u8 head[42] = {
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
		0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
		0, 9, 0, 9, 0, 0, 0, 0,
	};
	u32 sum = 0;
	memset(p, 0, len);
	memcpy(p, head, sizeof head);
	p[16] = (len - 14) >> 8, p[17] = (len - 14);
	p[38] = (len - 34) >> 8, p[39] = (len - 34);
	for (int i = 14; i < 34; i += 2)
		sum += p[i] << 8 | p[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	p[24] = ~sum >> 8, p[25] = ~sum;
}

// idle waits for packets.
static inline void idle(void) {
	const struct timespec nap = {0, SLEEP_NS};
	count.wakeups++;
	nanosleep(&nap, NULL);
}

static inline int sys_bpf(int cmd, union bpf_attr *a) { return syscall(SYS_bpf, cmd, a, sizeof *a); }

// attach_xdp loads a program and links it to the interface for as long as this process lives.
static inline void attach_xdp(const struct bpf_insn *prog, u32 n, int ifindex) {
	static char log[4096];
	union bpf_attr a = {
		.prog_type = BPF_PROG_TYPE_XDP, .insns = (u64)prog, .insn_cnt = n,
		.license = (u64) "Apache-2.0", .log_buf = (u64)log, .log_size = sizeof log, .log_level = 1,
	};
	int fd = sys_bpf(BPF_PROG_LOAD, &a);
	if (fd < 0) {
		fputs(log, stderr);
		die("load the XDP program");
	}
	union bpf_attr l = {.link_create = {.prog_fd = fd, .target_ifindex = ifindex,
					    .attach_type = BPF_XDP, .flags = XDP_FLAGS_DRV_MODE}};
	if (sys_bpf(BPF_LINK_CREATE, &l) < 0)
		die("attach the XDP program");
}

struct options {
	const char *role;
	int ifindex;
	u32 size, ring, batch, flows, services, pps;
	int bypass;
	u8 first[128];   // the first packet of a stream
	u32 first_len;   // 0 is the probe to nobody
};

static inline u32 unhex(const char *s, u8 *out, u32 max) {
	u32 n = 0;
	for (; n < max && sscanf(s, "%2hhx", &out[n]) == 1; n++)
		s += 2;
	return *s ? 0 : n;
}

static inline struct options options(int argc, char **argv) {
	struct options o = {.size = 64, .ring = 4096, .batch = 64, .flows = 1, .services = 1};
	int c;
	while ((c = getopt(argc, argv, "s:r:b:yx:f:v:p:")) != -1) {
		switch (c) {
		case 's': o.size = atoi(optarg); break;
		case 'r': o.ring = atoi(optarg); break;
		case 'b': o.batch = atoi(optarg); break;
		case 'y': o.bypass = 1; break;
		case 'f': o.flows = atoi(optarg); break;
		case 'v': o.services = atoi(optarg); break;
		case 'p': o.pps = atoi(optarg); break;
		case 'x':
			o.first_len = o.size = unhex(optarg, o.first, sizeof o.first);
			break;
		default: exit(2);
		}
	}
	if (argc - optind != 2 || o.size < MIN_LEN || o.size > 2048 || o.batch < 1 || o.batch > 256 ||
	    o.flows < 1 || o.services < 1 || o.ring < 256 || o.ring & (o.ring - 1)) {
		fprintf(stderr, "usage: %s [-s bytes] [-r ring] [-b batch] [-y] [-x hex [-f flows] [-v services]] [-p pps] rx|tx|forward DEVICE\n", argv[0]);
		exit(2);
	}
	o.role = argv[optind];
	o.ifindex = if_nametoindex(argv[optind + 1]);
	if (!o.ifindex)
		die(argv[optind + 1]);
	return o;
}

#endif
