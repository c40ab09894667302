/*
 * cmsgs.c - control messages and the queue of errors of datagrams: a line for each call and each message. TestControlMessagesAsOnTheKernel runs it on the
 * kernel's stack and by the library, and compares.
 */
#include "datagrams.h"

static void ask_all(int fd)
{
	show("timestamps", set(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1));
	show("destination", v6 ? set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1) : set(fd, IPPROTO_IP, IP_PKTINFO, 1));
	show("class", v6 ? set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1) : set(fd, IPPROTO_IP, IP_RECVTOS, 1));
	show("hops", v6 ? set(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1) : set(fd, IPPROTO_IP, IP_RECVTTL, 1));
}

/* Control messages of a connected socket, which are asked for before it connects, or after it has got a datagram. */
static void connected(bool before)
{
	int fd = udp(), peer = udp(), value = 0x20;
	unsigned char tos = 0x40;
	char b[8];
	if (before)
		ask_all(fd);
	show("connect", aim(fd, port_of(peer)));
	show("connect the peer", aim(peer, port_of(fd)));
	show("send", send(peer, "one", 3, 0));
	struct pollfd p = {.fd = fd, .events = POLLIN};
	show("poll", poll(&p, 1, SOON));
	if (!before) {
		ask_all(fd);
		show("read", read(fd, b, sizeof b)); /* what came before has what it has */
		show("send", send(peer, "two", 3, 0));
	}
	receive(fd, 0, port_of(peer));
	show("class of one datagram", v6 ? send_with(peer, 0, IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof value, 3) : send_with(peer, 0, IPPROTO_IP, IP_TOS, &value, sizeof value, 3));
	receive(fd, 0, port_of(peer));
	if (!v6)
		send_with(peer, 0, IPPROTO_IP, IP_TOS, &tos, sizeof tos, 3);
	value = 7;
	show("hops of one datagram", v6 ? send_with(peer, 0, IPPROTO_IPV6, IPV6_HOPLIMIT, &value, sizeof value, 3) : send_with(peer, 0, IPPROTO_IP, IP_TTL, &value, sizeof value, 3));
	if (!v6)
		receive(fd, 0, port_of(peer));
	receive(fd, 0, port_of(peer));
	show("write", write(peer, "plain", 5));
	show("read", read(fd, b, sizeof b));
	show("write back", write(fd, "back", 4));
	show("recv", recv(peer, b, sizeof b, 0));
	show("send", send(fd, "more", 4, 0));
	show("recv", recv(peer, b, sizeof b, 0));
	struct sockaddr_in none = {.sin_family = AF_UNSPEC};
	show("send", send(peer, "last", 4, 0));
	show("poll", poll(&p, 1, SOON));
	show("disconnect", connect(fd, (struct sockaddr *)&none, sizeof none));
	show("send to nobody", send(fd, "x", 1, 0));
	receive(fd, 0, port_of(peer));
}

/* UDP_SEGMENT as a control message: one call, many datagrams. */
static void segments(void)
{
	int fd = udp(), peer = udp();
	uint16_t size = 1000;
	for (int round = 0; round < 2; round++) {
		send_with(fd, round == 0 ? port_of(peer) : 0, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size, 2500);
		for (int i = 0; i < 3; i++)
			receive(peer, 0, port_of(fd));
		if (round == 0)
			show("connect", aim(fd, port_of(peer)));
	}
	send_with(fd, 0, 0, 0, NULL, 0, 1500);
	receive(peer, 0, port_of(fd));
}

/* A connected socket sends to others by the address of a message, and goes on with its peer. */
static void addressed(void)
{
	int fd = udp(), peer = udp(), third = udp();
	show("connect", aim(fd, port_of(peer)));
	send_with(fd, 0, 0, 0, NULL, 0, 3);
	receive(peer, 0, port_of(fd));
	send_with(fd, port_of(third), 0, 0, NULL, 0, 3);
	receive(third, 0, port_of(fd));
	send_with(fd, 0, 0, 0, NULL, 0, 3);
	receive(peer, 0, port_of(fd));
	socklen_t len;
	struct sockaddr_storage to = at(port_of(third), &len);
	show("sendto", sendto(fd, "xyz", 3, 0, (struct sockaddr *)&to, len));
	receive(third, 0, port_of(fd));
	show("send", send(fd, "uvw", 3, 0));
	receive(peer, 0, port_of(fd));
	int counts[2] = {0};
	char b[8];
	for (int i = 0; i < 40; i++) { /* what is sent before connect(2) goes to the peer of before */
		aim(fd, port_of(i % 2 ? peer : third));
		if (send(fd, i % 2 ? "p" : "t", 1, 0) != 1)
			puts("send fails");
	}
	for (int i = 0; i < 40; i++) {
		struct pollfd p = {.fd = i % 2 ? peer : third, .events = POLLIN};
		counts[i % 2] += poll(&p, 1, SOON) == 1 && recv(p.fd, b, sizeof b, MSG_DONTWAIT) == 1 && b[0] == (i % 2 ? 'p' : 't');
	}
	printf("%d to the peer, %d to the other\n", counts[1], counts[0]);
	send_with(third, port_of(fd), 0, 0, NULL, 0, 3); /* does not come: it is not the peer's */
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	receive(fd, 0, port_of(peer));
}

static void await_error(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	show("an event", poll(&p, 1, SOON));
	printf("  %#x\n", (unsigned)p.revents);
}

/* IP_RECVERR: what ICMP has reported of a datagram. */
static void errors(bool to_peer)
{
	int fd = udp(), port = CLOSED, one = 1;
	char b[8];
	show("IP_RECVERR", v6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &one, sizeof one) : setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof one));
	show("empty", recv(fd, b, sizeof b, MSG_ERRQUEUE));
	if (to_peer)
		show("connect", aim(fd, port));
	send_with(fd, to_peer ? 0 : port, 0, 0, NULL, 0, 5);
	await_error(fd);
	receive(fd, MSG_ERRQUEUE, port);
	struct pollfd left = {.fd = fd, .events = POLLIN};
	show("events left", poll(&left, 1, 0));
	printf("SO_ERROR %d\n", error_of(fd));
	show("recv", recv(fd, b, sizeof b, MSG_DONTWAIT));
	show("empty", recv(fd, b, sizeof b, MSG_ERRQUEUE));
	send_with(fd, to_peer ? 0 : port, 0, 0, NULL, 0, 5);
	await_error(fd);
	show("recv", recv(fd, b, sizeof b, MSG_DONTWAIT));
	show("recv", recv(fd, b, sizeof b, MSG_DONTWAIT));
	receive(fd, MSG_ERRQUEUE, port);
	struct mmsghdr none = {0};
	show("recvmmsg", recvmmsg(fd, &none, 1, MSG_DONTWAIT, NULL));
	int peer = udp();
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	if (!to_peer) {
		receive(fd, 0, port_of(peer));
		send_with(fd, port, 0, 0, NULL, 0, 5);
		await_error(fd);
		printf("SO_ERROR %s\n", strerrorname_np(error_of(fd)));
		send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
		receive(fd, 0, port_of(peer));
	}
}

/* A datagram that no packet takes is the sender's own error. */
static void too_long(void)
{
	static char big[70000];
	int fd = udp(), one = 1, peer = udp();
	show("IP_RECVERR", v6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &one, sizeof one) : setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof one));
	show("connect", aim(fd, port_of(peer)));
	show("send", send(fd, big, sizeof big, 0));
}

/* await_times waits until the kernel takes times: it begins some time after the first socket that asks for them. */
static void await_times(void)
{
	int fd = udp(), peer = udp();
	char b[8], control[64];
	if (set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE) != 0 || aim(peer, port_of(fd)) != 0)
		exit(4);
	for (int i = 0; i < SOON; i++) {
		struct iovec part = {b, sizeof b};
		struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		if (send(peer, "x", 1, 0) == 1 && recvmsg(fd, &m, 0) == 1 && m.msg_controllen != 0)
			return;
		usleep(1000);
	}
}

static void stamping(void)
{
	await_times(); /* its socket stays open */
	int fd = udp(), peer = udp(), value = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
	show("SO_TIMESTAMPING", set(fd, SOL_SOCKET, SO_TIMESTAMPING, value));
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	receive(fd, 0, port_of(peer));
	show("SO_TIMESTAMP", set(fd, SOL_SOCKET, SO_TIMESTAMP, 1));
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	receive(fd, 0, port_of(peer));
	show("SO_TIMESTAMPING", set(fd, SOL_SOCKET, SO_TIMESTAMPING, 0));
	show("connect", aim(fd, port_of(peer)));
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	receive(fd, 0, port_of(peer));
	show("SO_TIMESTAMPING", set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE)); /* made, and not reported */
	show("SO_TIMESTAMP", set(fd, SOL_SOCKET, SO_TIMESTAMP, 0));
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	receive(fd, 0, port_of(peer));
}

/* Times of what is sent come by the queue of errors. */
static void stamping_sent(bool to_peer)
{
	const int both = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY;
	int fd = udp(), peer = udp();
	struct pollfd p = {.fd = fd, .events = POLLIN};
	if (to_peer)
		show("connect", aim(fd, port_of(peer)));
	for (int round = 0; round < 2; round++) {
		show("SO_TIMESTAMPING", set(fd, SOL_SOCKET, SO_TIMESTAMPING, both | (round == 0 ? SOF_TIMESTAMPING_OPT_ID : 0)));
		for (int i = 0; i < 3; i++) {
			send_with(fd, to_peer ? 0 : port_of(peer), 0, 0, NULL, 0, 3);
			await_error(fd);
			receive(fd, MSG_ERRQUEUE, 0);
			receive(fd, MSG_ERRQUEUE, 0);
			receive(fd, MSG_ERRQUEUE, 0);
			show("events left", poll(&p, 1, 0));
			printf("SO_ERROR %d\n", error_of(fd));
			receive(peer, 0, port_of(fd));
		}
	}
	show("SO_TIMESTAMPING", set(fd, SOL_SOCKET, SO_TIMESTAMPING, 0));
	send_with(fd, to_peer ? 0 : port_of(peer), 0, 0, NULL, 0, 3);
	receive(peer, 0, port_of(fd));
	show("events left", poll(&p, 1, 0));
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(60);
	const char *part = argc == 2 ? argv[1] : "";
	v6 = strstr(part, "-6") != NULL;
	if (strncmp(part, "before", 6) == 0)
		connected(true);
	else if (strncmp(part, "after", 5) == 0)
		connected(false);
	else if (strncmp(part, "addressed", 9) == 0)
		addressed();
	else if (strncmp(part, "segments", 8) == 0)
		segments();
	else if (strncmp(part, "errors-connected", 16) == 0)
		errors(true);
	else if (strncmp(part, "errors", 6) == 0)
		errors(false);
	else if (strncmp(part, "too-long", 8) == 0)
		too_long();
	else if (strncmp(part, "stamping-sent", 13) == 0)
		stamping_sent(strstr(part, "connected") != NULL);
	else if (strncmp(part, "stamping", 8) == 0)
		stamping();
	else
		return 2;
	return 0;
}
