// bpf: an expression on the packets of a file by libpcap: its optimizer, its interpreter.
//
//	bpf PACKETS EXPRESSION
//
// PACKETS is a u64, the number of matches, and a list of { u32 len; u8 bytes[len] }; role.WriteExpression
// writes it. The packets lie in frames of 2 KiB, as ours do.
#include "peer.h"
// The library's bpf.h and the kernel's, which peer.h includes, exclude each other.
#define PCAP_DONT_INCLUDE_PCAP_BPF_H
struct bpf_program {
	unsigned bf_len;
	void *bf_insns;
};
#include <pcap/pcap.h>
unsigned bpf_filter(const void *, const u8 *, unsigned, unsigned);

enum { FRAME = 2048, MAX = 1 << 16 };

static u8 *mem;
static u32 lens[MAX], n;

static u64 read_packets(const char *path) {
	FILE *f = fopen(path, "rb");
	u64 want;
	if (!f || fread(&want, 8, 1, f) != 1)
		die(path);
	mem = mmap(NULL, (u64)FRAME * MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		die("memory");
	for (u32 len; n < MAX && fread(&len, 4, 1, f) == 1; n++) {
		if (len > FRAME || fread(mem + (u64)FRAME * n, 1, len, f) != len)
			die(path);
		lens[n] = len;
	}
	fclose(f);
	return want;
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	u64 want = read_packets(argv[1]), got = 0;
	pcap_t *p = pcap_open_dead(1 /* Ethernet */, 262144);
	struct bpf_program prog;
	if (!p || pcap_compile(p, &prog, argv[2], 1, PCAP_NETMASK_UNKNOWN)) {
		fprintf(stderr, "bpf: %s\n", p ? pcap_geterr(p) : "no handle");
		return 1;
	}
	for (u32 i = 0; i < n; i++)
		got += bpf_filter(prog.bf_insns, mem + (u64)FRAME * i, lens[i], lens[i]) != 0;
	if (got != want) {
		fprintf(stderr, "bpf: %lu matches, want %lu\n", got, want);
		return 1;
	}
	ready(pcap_lib_version());
	volatile u64 sink = 0;
	for (u32 i = 0; !stopped; i = i + 1 < n ? i + 1 : 0) {
		sink += bpf_filter(prog.bf_insns, mem + (u64)FRAME * i, lens[i], lens[i]);
		count.packets++;
	}
	print_counters(1);
	return 0;
}
