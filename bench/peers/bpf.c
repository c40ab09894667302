// bpf: an expression on the packets of a file, as libpcap's optimizer compiles it: by libpcap's interpreter, or
// by the kernel's compiler to machine code.
//
//	bpf PACKETS FRAMES EXPRESSION [kernel]
//
// PACKETS is a u64, the number of matches, and a list of { u32 len; u8 bytes[len] }; role.WriteExpression
// writes it. The packets lie in FRAMES frames of 2 KiB, again from the first where there are fewer, as ours do.
#include "peer.h"
#include <linux/filter.h>
#include <sys/un.h>
// The library's bpf.h and the kernel's, which peer.h includes, exclude each other.
#define PCAP_DONT_INCLUDE_PCAP_BPF_H
struct bpf_program {
	unsigned bf_len;
	struct sock_filter *bf_insns; // has the layout of the library's struct bpf_insn
};
#include <pcap/pcap.h>
unsigned bpf_filter(const void *, const u8 *, unsigned, unsigned);

enum { FRAME = 2048, HUGE_PAGE = 2 << 20 };

static u8 *mem;
static u32 *lens, n;

// frames_memory is on huge pages where the kernel has them, as the arenas of Millrace are.
static u8 *frames_memory(u64 size) {
	u8 *p = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		die("memory");
	p = (u8 *)(((u64)p + HUGE_PAGE - 1) & ~(u64)(HUGE_PAGE - 1));
	madvise(p, size, MADV_HUGEPAGE);
	return p;
}

static u64 read_packets(const char *path, u32 frames) {
	FILE *f = fopen(path, "rb");
	u64 want;
	u32 len, have;
	if (!f || fread(&want, 8, 1, f) != 1)
		die(path);
	mem = frames_memory((u64)FRAME * frames);
	lens = calloc(frames, sizeof *lens);
	for (; n < frames && fread(&len, 4, 1, f) == 1; n++) {
		if (len > FRAME || fread(mem + (u64)FRAME * n, 1, len, f) != len)
			die(path);
		lens[n] = len;
	}
	fclose(f);
	for (have = n; have && n < frames; n++) {
		lens[n] = lens[n - have];
		memcpy(mem + (u64)FRAME * n, mem + (u64)FRAME * (n - have), lens[n]);
	}
	return want;
}

static void check(u64 got, u64 want) {
	if (got == want)
		return;
	fprintf(stderr, "bpf: %lu matches, want %lu\n", got, want);
	exit(1);
}

static void interpreter(struct bpf_program *prog, u64 want) {
	u64 got = 0;
	for (u32 i = 0; i < n; i++)
		got += bpf_filter(prog->bf_insns, mem + (u64)FRAME * i, lens[i], lens[i]) != 0;
	check(got, want);
	ready(pcap_lib_version());
	volatile u64 sink = 0;
	for (u32 i = 0; !stopped; i = i + 1 < n ? i + 1 : 0) {
		sink += bpf_filter(prog->bf_insns, mem + (u64)FRAME * i, lens[i], lens[i]);
		count.packets++;
	}
}

// A pair of sockets, of which the second has the filter: the kernel runs it in send, in the sender's time.
struct pair {
	int send, receive;
};

static struct pair filtered(struct sock_filter *insns, u32 len) {
	int fd[2];
	struct sock_fprog prog = {.len = len, .filter = insns};
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fd))
		die("socketpair");
	if (setsockopt(fd[1], SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog))
		die("SO_ATTACH_FILTER");
	return (struct pair){fd[0], fd[1]};
}

// repeated is the program as often as fits into about 512 instructions, and four times at least if the kernel
// takes it: whatever the result of one copy, the next follows, and the last drops the packet.
static u32 repeated(struct bpf_program *p, struct sock_filter *out, u32 *copies) {
	u32 len = p->bf_len, at = 0;
	*copies = len > 128 ? 4 : 512 / len;
	while (*copies > 1 && *copies * len + 1 > BPF_MAXINSNS)
		--*copies;
	for (u32 c = 0; c < *copies; c++)
		for (u32 i = 0; i < len; i++, at++) {
			out[at] = p->bf_insns[i];
			if (BPF_CLASS(out[at].code) == BPF_RET)
				out[at] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, len - i - 1);
		}
	out[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	return at;
}

// sent returns the CPU time that sending the packets from i on takes; they wrap around.
static u64 sent(int fd, u32 i, u32 packets) {
	u64 begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	for (; packets--; i = i + 1 < n ? i + 1 : 0)
		if (send(fd, mem + (u64)FRAME * i, lens[i], 0) < 0) // also of a packet that is not dropped and fills the queue
			die("send");
	return clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
}

// kernel measures the program between two ways to send a packet that is dropped: by the program's copies, and by
// one instruction. What the program costs without the call of it is the difference.
static void kernel(struct bpf_program *prog, u64 want) {
	static struct sock_filter insns[BPF_MAXINSNS + 1];
	static volatile u64 cpu;
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	enum { BLOCK = 256 };
	char version[64], got_byte[1];
	u64 got = 0;
	u32 copies;
	struct pair once = filtered(prog->bf_insns, prog->bf_len), without = filtered(&drop, 1);
	for (u32 i = 0; i < n; i++) {
		send(once.send, mem + (u64)FRAME * i, lens[i], 0);
		got += recv(once.receive, got_byte, 1, MSG_TRUNC) >= 0;
	}
	check(got, want);
	u32 len = repeated(prog, insns, &copies);
	struct pair often = filtered(insns, len);
	cpu_measured = &cpu;
	snprintf(version, sizeof version, "%u instructions, %u times", prog->bf_len, copies);
	ready(version);
	for (u32 i = 0; !stopped; i = (i + BLOCK) % n) {
		u64 with = sent(often.send, i, BLOCK), bare = sent(without.send, i, BLOCK);
		cpu += with - bare;
		count.packets += (u64)BLOCK * copies;
	}
}

int main(int argc, char **argv) {
	if (argc < 4)
		return 2;
	u64 want = read_packets(argv[1], atoi(argv[2]));
	pcap_t *p = pcap_open_dead(1 /* Ethernet */, 262144);
	struct bpf_program prog;
	if (!p || pcap_compile(p, &prog, argv[3], 1, PCAP_NETMASK_UNKNOWN)) {
		fprintf(stderr, "bpf: %s\n", p ? pcap_geterr(p) : "no handle");
		return 1;
	}
	(argc > 4 ? kernel : interpreter)(&prog, want);
	print_counters(1);
	return 0;
}
