// packet: the kernel's packet sockets, as good as they get on one core.
//
//	packet [-s bytes] [-r ring] [-b batch] [-y] [-x hex [-f flows] [-v services]] [-p pps] rx|tx|forward DEVICE
//
// rx is a TPACKET_V3 ring, tx is sendmmsg (-y: around the queueing discipline), forward is recvmmsg
// and sendmmsg on one socket. -x is the first packet of a stream (stream.go): a UDP probe, or a TCP
// packet, which carries no number. -p bounds the rate.
#include "peer.h"
#include <linux/if_packet.h>
#include <poll.h>

enum { BLOCK = 1 << 18, BLOCKS = 64, RETIRE_MS = 1, BUFFER = 2048, MAX_BATCH = 256 };

static int fd;

static void set(int option, int value, const char *name) {
	if (setsockopt(fd, SOL_PACKET, option, &value, sizeof value))
		die(name);
}

static void open_socket(int protocol) {
	if ((fd = socket(AF_PACKET, SOCK_RAW, 0)) < 0)
		die("socket");
	if (protocol)
		set(PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING");
}

static void bind_socket(int ifindex, int protocol) {
	struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_ifindex = ifindex, .sll_protocol = htons(protocol)};
	if (bind(fd, (void *)&a, sizeof a))
		die("bind");
}

// pass_all makes veth accept frames that an XDP program on the other side sends.
static void pass_all(int ifindex) {
	const struct bpf_insn prog[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = XDP_PASS},
		{.code = BPF_JMP | BPF_EXIT},
	};
	attach_xdp(prog, sizeof prog / sizeof *prog, ifindex);
}

static u8 *map_blocks(void) {
	struct tpacket_req3 req = {
		.tp_block_size = BLOCK, .tp_block_nr = BLOCKS, .tp_frame_size = BUFFER,
		.tp_frame_nr = BLOCK / BUFFER * BLOCKS, .tp_retire_blk_tov = RETIRE_MS,
	};
	set(PACKET_VERSION, TPACKET_V3, "PACKET_VERSION");
	if (setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof req))
		die("PACKET_RX_RING");
	u8 *p = mmap(NULL, (u64)BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		die("mmap the ring");
	return p;
}

static void walk(struct tpacket_block_desc *b) {
	struct tpacket3_hdr *h = (void *)((u8 *)b + b->hdr.bh1.offset_to_first_pkt);
	for (u32 i = 0; i < b->hdr.bh1.num_pkts; i++) {
		saw((u8 *)h + h->tp_mac, h->tp_snaplen);
		h = (void *)((u8 *)h + h->tp_next_offset);
	}
}

static void rx(u8 *ring) {
	u32 at = 0;
	while (!stopped) {
		struct tpacket_block_desc *b = (void *)(ring + (u64)at * BLOCK);
		if (!(__atomic_load_n(&b->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) {
			idle();
			continue;
		}
		walk(b);
		__atomic_store_n(&b->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
		at = (at + 1) % BLOCKS;
	}
}

static u8 buffers[MAX_BATCH][BUFFER];
static struct iovec parts[MAX_BATCH];
static struct mmsghdr messages[MAX_BATCH];

static void point(u32 len) {
	for (int i = 0; i < MAX_BATCH; i++) {
		parts[i] = (struct iovec){buffers[i], len};
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
}

// send_all sends n messages; those that the device refuses are counted as dropped.
static void send_all(u32 n) {
	u32 sent = 0, lost = 0;
	while (sent + lost < n) {
		int k = sendmmsg(fd, messages + sent + lost, n - sent - lost, 0);
		count.wakeups++;
		if (k > 0)
			sent += k;
		else if (errno == ENOBUFS || errno == EAGAIN)
			lost++;
		else if (errno != EINTR)
			die("sendmmsg");
	}
	count.dropped += lost;
}

static u32 sum16(const u8 *p, u32 n, u32 sum) {
	for (u32 i = 0; i < n; i += 2)
		sum += p[i] << 8 | p[i + 1];
	return sum;
}

static void put16(u8 *p, u32 v) { p[0] = v >> 8, p[1] = v; }

static void put_sum(u8 *p, u32 sum) {
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	put16(p, ~sum);
}

enum { IP = 14, PORTS = 34, TCP_SUM = 50, PORT_BITS = 6 };

// vary makes p packet number n of a stream.
static void vary(u8 *p, u64 n, const struct options *o) {
	u64 x = n * 0x9E3779B97F4A7C15u;
	x ^= x >> 32;
	x *= 0xD6E8FEB86659FD93u;
	u32 flow = (u32)(x >> 32) % o->flows, service = (u32)x % o->services, addr;
	memcpy(&addr, o->first + IP + 12, 4);
	addr = htonl(ntohl(addr) + (flow >> PORT_BITS << 1));
	memcpy(p + IP + 12, &addr, 4);
	put16(p + PORTS, (o->first[PORTS] << 8 | o->first[PORTS + 1]) + (flow & ((1 << PORT_BITS) - 1)));
	put16(p + PORTS + 2, (o->first[PORTS + 2] << 8 | o->first[PORTS + 3]) + service);
	put16(p + IP + 10, 0);
	put_sum(p + IP + 10, sum16(p + IP, 20, 0));
	if (p[IP + 9] == 6) {
		u32 len = o->first_len - PORTS;
		put16(p + TCP_SUM, 0);
		put_sum(p + TCP_SUM, sum16(p + PORTS, len, sum16(p + IP + 12, 8, 6 + len)));
	}
}

// pace sleeps until sent packets are due.
static void pace(u64 start, u64 sent, u32 pps) {
	u64 due = start + sent * 1000000000u / pps, now = clock_ns(CLOCK_MONOTONIC);
	if (now < due) {
		struct timespec nap = {(due - now) / 1000000000u, (due - now) % 1000000000u};
		nanosleep(&nap, NULL);
	}
}

static void tx(struct options *o) {
	u64 seq = 0, start = clock_ns(CLOCK_MONOTONIC);
	int numbered = !o->first_len || o->first[IP + 9] == 17;
	point(o->size);
	for (int i = 0; i < MAX_BATCH; i++) {
		probe(buffers[i], o->size);
		memcpy(buffers[i], o->first, o->first_len);
	}
	while (!stopped) {
		for (u32 i = 0; i < o->batch; i++) {
			if (o->first_len)
				vary(buffers[i], seq + i, o);
			if (numbered)
				stamp(buffers[i], seq + i);
		}
		seq += o->batch;
		send_all(o->batch);
		count.packets += o->batch; // what the device refused is lost like what others lose
		if (o->pps)
			pace(start, seq, o->pps);
	}
}

static void forward(u32 batch) {
	point(BUFFER);
	while (!stopped) {
		int n = recvmmsg(fd, messages, batch, MSG_DONTWAIT, NULL);
		if (n <= 0) {
			idle();
			continue;
		}
		for (int i = 0; i < n; i++) {
			parts[i].iov_len = messages[i].msg_len;
			saw(buffers[i], messages[i].msg_len);
			swap_mac(buffers[i]);
		}
		send_all(n);
		for (int i = 0; i < n; i++)
			parts[i].iov_len = BUFFER;
	}
}

int main(int argc, char **argv) {
	struct options o = options(argc, argv);
	u8 *ring = NULL;
	int sends = !strcmp(o.role, "tx");
	open_socket(sends ? 0 : ETH_P_IP);
	if (!sends)
		pass_all(o.ifindex);
	if (o.bypass)
		set(PACKET_QDISC_BYPASS, 1, "PACKET_QDISC_BYPASS");
	if (!strcmp(o.role, "rx"))
		ring = map_blocks();
	int big = 16 << 20;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &big, sizeof big);
	bind_socket(o.ifindex, sends ? 0 : ETH_P_IP);
	ready("packet socket, gcc " __VERSION__);
	if (ring)
		rx(ring);
	else if (!strcmp(o.role, "forward"))
		forward(o.batch);
	else if (sends)
		tx(&o);
	struct tpacket_stats_v3 s = {0};
	socklen_t n = sizeof s;
	if (!sends && !getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &s, &n))
		count.dropped += s.tp_drops;
	print_counters(1);
	return 0;
}
