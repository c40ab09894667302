// oracle judges expressions by libpcap. It reads the capture files of its arguments, then lines
// from standard input: link type, snapshot length, netmask, flags and the expression in hexadecimal.
// For each it answers "E message", or "P", the verdict of each packet of that link type as
// hexadecimal digits of four packets, and the program as four numbers an instruction.
#include <config.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "pcap-int.h"

struct pkt { int dlt; unsigned caplen, len; unsigned char *data; };
static struct pkt *pkts;
static int npkts;

static void add_file(const char *name) {
	char err[PCAP_ERRBUF_SIZE];
	pcap_t *p = pcap_open_offline(name, err);
	if (!p) { fprintf(stderr, "oracle: %s: %s\n", name, err); return; }
	struct pcap_pkthdr *h; const unsigned char *d;
	int r;
	while ((r = pcap_next_ex(p, &h, &d)) == 1) {
		if ((npkts & (npkts - 1)) == 0) pkts = realloc(pkts, sizeof *pkts * (npkts ? npkts * 2 : 1));
		struct pkt *k = &pkts[npkts++];
		k->dlt = pcap_datalink(p); k->caplen = h->caplen; k->len = h->len;
		k->data = malloc(h->caplen + 1); memcpy(k->data, d, h->caplen);
	}
	pcap_close(p);
}

static char line[4 << 20], expr[2 << 20];

int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) add_file(argv[i]);
	while (fgets(line, sizeof line, stdin)) {
		int dlt, snaplen; unsigned netmask, flags; int at;
		if (sscanf(line, "%d %d %u %u %n", &dlt, &snaplen, &netmask, &flags, &at) < 4) return 1;
		size_t n = 0; unsigned b;
		for (char *s = line + at; sscanf(s, "%2x", &b) == 1; s += 2) expr[n++] = b;
		expr[n] = 0;
		pcap_t *p = pcap_open_dead(dlt, snaplen);
		p->bpf_codegen_flags = 0;
		if (flags & 1) p->bpf_codegen_flags |= BPF_SPECIAL_BASIC_HANDLING | BPF_SPECIAL_VLAN_HANDLING;
		if (flags & 2) p->bpf_codegen_flags |= BPF_OFFLINE_AF_HANDLING;
		p->swapped = (flags & 4) != 0;
		struct bpf_program prog;
		if (pcap_compile(p, &prog, expr, 0, netmask) != 0) {
			printf("E %s\n", pcap_geterr(p));
		} else {
			fputs("P ", stdout);
			int nib = 0, have = 0;
			for (int i = 0; i < npkts; i++) {
				if (pkts[i].dlt != dlt) continue;
				struct pcap_pkthdr h = {.caplen = pkts[i].caplen, .len = pkts[i].len};
				alarm(20);
				nib |= (pcap_offline_filter(&prog, &h, pkts[i].data) != 0) << have;
				if (++have == 4) { putchar("0123456789abcdef"[nib]); nib = have = 0; }
			}
			alarm(0);
			if (have) putchar("0123456789abcdef"[nib]);
			putchar(' ');
			for (unsigned i = 0; i < prog.bf_len; i++)
				printf("%u,%u,%u,%u;", prog.bf_insns[i].code, prog.bf_insns[i].jt, prog.bf_insns[i].jf, prog.bf_insns[i].k);
			putchar('\n');
			pcap_freecode(&prog);
		}
		pcap_close(p);
		fflush(stdout);
	}
	return 0;
}
