/*
 * corners.c - calls that few programs make, and what they must not do: a line for each call, with its result and errno. TestCorners runs
 * it on the kernel's stack and by the library, and compares.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "loopback.h"

#define SHORT 20 /* ms, for what is there soon as a rule, and does not change what is shown if it comes later */

/* Buffers for an option that are much longer than it. */
static void long_options(void)
{
	char space[4096];
	int client, server;
	struct {
		int level, name;
	} all[] = {{IPPROTO_TCP, TCP_NODELAY}, {SOL_SOCKET, SO_KEEPALIVE}, {IPPROTO_TCP, TCP_CONGESTION}, {SOL_SOCKET, SO_LINGER}};
	stream_pair(&client, &server);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		socklen_t len = sizeof space;
		show("long buffer", getsockopt(client, all[i].level, all[i].name, space, &len));
		show("length", len);
	}
	socklen_t len = sizeof space, negative = (socklen_t)-1;
	show("TCP_INFO", getsockopt(client, IPPROTO_TCP, TCP_INFO, space, &len));
	show("as long as of old kernels", len >= 104);
	show("negative", getsockopt(client, IPPROTO_TCP, TCP_NODELAY, space, &negative));
}

/* The queue of errors is empty, and what the peer has sent stays. */
static void error_queue(void)
{
	int client, server, a = bound(SOCK_DGRAM), b = bound(SOCK_DGRAM);
	stream_pair(&client, &server);
	send(server, "stream", 6, 0);
	await(client, POLLIN);
	receive("stream, errors", client, MSG_ERRQUEUE, -1);
	receive("stream, bytes", client, 0, -1);
	receive("stream, errors without MSG_DONTWAIT", client, MSG_ERRQUEUE, -1);
	put(a, b, "datagram");
	await(b, POLLIN);
	receive("datagram, errors", b, MSG_ERRQUEUE, -1);
	receive("datagram", b, 0, a);
	show("connect", aim_at(b, a));
	put(a, b, "connected");
	await(b, POLLIN);
	receive("connected, errors", b, MSG_ERRQUEUE, -1);
	receive("connected", b, 0, a);
	struct iovec part = {(char[10]){0}, 10};
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
	show("several", recvmmsg(b, &m, 1, MSG_ERRQUEUE, NULL));
}

static void *shut_later(void *fd)
{
	pause_ms(200);
	shutdown(*(int *)fd, SHUT_RDWR);
	return NULL;
}

/* woken shows what a call that waits returns when another thread has shut the socket down. */
static void woken(void)
{
	char b[10];
	pthread_t t;
	int l = bound(SOCK_STREAM), u = bound(SOCK_DGRAM), c = bound(SOCK_DGRAM), peer = bound(SOCK_DGRAM);
	show("listen", listen(l, 5));
	pthread_create(&t, NULL, shut_later, &l);
	show("accept", accept(l, NULL, NULL));
	pthread_join(t, NULL);
	show("accept again", accept(l, NULL, NULL));
	pthread_create(&t, NULL, shut_later, &u);
	show("recv", recv(u, b, sizeof b, 0));
	pthread_join(t, NULL);
	show("recv again", recv(u, b, sizeof b, 0));
	show("connect", aim_at(c, peer));
	pthread_create(&t, NULL, shut_later, &c);
	show("recv, connected", recv(c, b, sizeof b, 0));
	pthread_join(t, NULL);
	show("recv again", recv(c, b, sizeof b, 0));
	show("shutdown of one without a peer", shutdown(peer, SHUT_RDWR));
}

/* come shows a datagram that is under way, or was there before. */
static void come(const char *what, int fd, int from)
{
	await(fd, POLLIN);
	receive(what, fd, 0, from);
}

/* waiting sends three datagrams, which are there as a rule when it returns. */
static void waiting(int a, int b, const char *first)
{
	char big[200];
	memset(big, 'z', sizeof big - 1);
	big[sizeof big - 1] = 0;
	put(a, b, first);
	put(a, b, "");
	put(a, b, big);
	await(b, POLLIN);
	pause_ms(SHORT);
}

/* disconnected: what waits when a UDP socket gets a peer or loses it keeps its bytes and its sender. */
static void disconnected(void)
{
	int a = bound(SOCK_DGRAM), b = bound(SOCK_DGRAM);
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	show("connect", aim_at(b, a));
	waiting(a, b, "one");
	show("disconnect", connect(b, &none, sizeof none));
	put(a, b, "two");
	come("short", b, a);
	come("empty", b, a);
	come("long", b, a);
	come("since", b, a);
	receive("none", b, 0, a);
	waiting(a, b, "three");
	show("connect again", aim_at(b, a));
	put(a, b, "four");
	come("short", b, a);
	come("empty", b, a);
	come("long", b, a);
	come("since", b, a);
	receive("none", b, 0, a);
}

/* failed sends a datagram to a closed port and waits for the ICMP error. */
static void failed(int fd)
{
	show("send", send(fd, "x", 1, 0));
	await(fd, 0);
}

/* refusals: an ICMP error is an error once, and never a datagram. */
static void refusals(void)
{
	int gone = bound(SOCK_DGRAM), a = bound(SOCK_DGRAM), b = bound(SOCK_DGRAM);
	struct sockaddr_in to = name_of(gone);
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	close(gone);
	show("connect", aim(b, &to));
	failed(b);
	show("SO_ERROR", error_of(b));
	show("SO_ERROR again", error_of(b));
	receive("nothing", b, 0, -1);
	failed(b);
	receive("refused", b, 0, -1);
	receive("nothing", b, 0, -1);
	failed(b);
	show("SO_ERROR", error_of(b));
	show("disconnect", connect(b, &none, sizeof none));
	receive("nothing", b, 0, -1);
	put(a, b, "one");
	come("one", b, a);
	show("connect", aim(b, &to));
	failed(b);
	show("SO_ERROR", error_of(b));
	show("another peer", aim_at(b, a));
	put(a, b, "two");
	come("two", b, a);
	receive("nothing", b, 0, -1);
}

static int signals;

static void on_pipe(int sig)
{
	signals += sig == SIGPIPE;
}

/* ends: a reset is an error of send once, without a signal. */
static void ends(void)
{
	int client, server;
	struct linger abort = {1, 0};
	signal(SIGPIPE, on_pipe);
	for (int i = 0; i < 2; i++) {
		stream_pair(&client, &server);
		send(client, "x", 1, 0);
		setsockopt(server, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
		await(server, POLLIN);
		close(server);
		await(client, 0);
		struct iovec part = {"y", 1};
		struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
		show("first", i == 0 ? send(client, "y", 1, 0) : sendmsg(client, &m, 0));
		show("SIGPIPE", signals);
		show("second", send(client, "y", 1, MSG_NOSIGNAL));
		show("SIGPIPE", signals);
		show("third", i == 0 ? send(client, "y", 1, 0) : sendmsg(client, &m, 0));
		show("SIGPIPE", signals);
		show("SO_ERROR", error_of(client));
		close(client);
	}
	stream_pair(&client, &server);
	show("shutdown", shutdown(client, SHUT_WR));
	show("own end", send(client, "y", 1, 0));
	show("SIGPIPE", signals);
}

/* bound6 returns a socket at a free port of all addresses. */
static int bound6(struct sockaddr_in6 *a)
{
	socklen_t len = sizeof *a;
	int fd = socket(AF_INET6, SOCK_DGRAM, 0), off = 0;
	*a = (struct sockaddr_in6){.sin6_family = AF_INET6};
	if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 || bind(fd, (struct sockaddr *)a, len) != 0 ||
	    getsockname(fd, (struct sockaddr *)a, &len) != 0)
		exit(7);
	return fd;
}

/* controls shows the control messages of a datagram that is sent to an address of this host. */
static void controls(int fd, struct sockaddr_in6 to, const char *ip)
{
	char b[10], space[400], text[INET6_ADDRSTRLEN];
	struct iovec part = {b, sizeof b};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	int from = socket(AF_INET6, SOCK_DGRAM, 0);
	inet_pton(AF_INET6, ip, &to.sin6_addr);
	show(ip, sendto(from, "x", 1, 0, (struct sockaddr *)&to, sizeof to));
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	poll(&ready, 1, 9000);
	show("received", recvmsg(fd, &m, MSG_DONTWAIT));
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
		bool v4 = c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO, v6 = c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO;
		if (v4)
			inet_ntop(AF_INET, CMSG_DATA(c) + offsetof(struct in_pktinfo, ipi_addr), text, sizeof text);
		if (v6)
			inet_ntop(AF_INET6, CMSG_DATA(c), text, sizeof text);
		struct timespec now, then;
		bool time = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS;
		if (time && clock_gettime(CLOCK_REALTIME, &now) == 0 && memcpy(&then, CMSG_DATA(c), sizeof then) != NULL)
			printf("  the time is %s\n", now.tv_sec - then.tv_sec >= 0 && now.tv_sec - then.tv_sec < 30 ? "right" : "wrong");
		printf("  %d %d of %zu %s\n", c->cmsg_level, c->cmsg_type, (size_t)c->cmsg_len, v4 || v6 ? text : "");
	}
	close(from);
}

/* control_messages: an IPv6 socket gets those of IPv6 with datagrams of IPv4, too, where they have some. */
static void control_messages(void)
{
	struct sockaddr_in6 at;
	int fd = bound6(&at), on = 1;
	show("IPV6_RECVTCLASS", setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof on));
	show("IPV6_RECVHOPLIMIT", setsockopt(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof on));
	controls(fd, at, "::1");
	controls(fd, at, "::ffff:127.0.0.1");
	show("IPV6_RECVPKTINFO", setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on));
	controls(fd, at, "::1");
	controls(fd, at, "::ffff:127.0.0.1");
	show("IP_RECVTOS", setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on));
	controls(fd, at, "::1");
	controls(fd, at, "::ffff:127.0.0.1");
	show("IP_PKTINFO", setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on));
	controls(fd, at, "::ffff:127.0.0.1");
	show("SO_TIMESTAMP", setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on));
	controls(fd, at, "::1");
	controls(fd, at, "::ffff:127.0.0.1");
	show("SO_TIMESTAMPNS", setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on));
	controls(fd, at, "::1");
}

static long unread(int fd)
{
	int n = -1;
	return ioctl(fd, FIONREAD, &n) == 0 ? n : -1;
}

/* lengths: FIONREAD of UDP is the length of the next datagram. */
static void lengths(void)
{
	int a = bound(SOCK_DGRAM), b = bound(SOCK_DGRAM);
	struct sockaddr_in none = at("127.0.0.1", 0);
	show("port 0", sendto(a, "x", 1, 0, (struct sockaddr *)&none, sizeof none));
	show("nothing", unread(b));
	put(a, b, "");
	put(a, b, "three");
	await(b, POLLIN);
	show("empty", unread(b));
	receive("empty", b, 0, a);
	await(b, POLLIN);
	show("five", unread(b));
	put(a, b, "nine more");
	pause_ms(SHORT);
	show("five", unread(b));
	show("connect", aim_at(b, a));
	show("five", unread(b));
	receive("five", b, 0, a);
	await(b, POLLIN);
	show("nine", unread(b));
}

static void switches(const char *what, int fd)
{
	int on = -1;
	socklen_t len = sizeof on;
	show(what, getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len) == 0 ? on : -1);
	show(what, getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &len) == 0 ? on : -1);
}

/* early_options: those that are set before bind, listen and connect are there behind them, and accepted sockets inherit them. */
static void early_options(void)
{
	int on = 1, off = 0, seven = 7;
	int l = bound(SOCK_STREAM), first = socket(AF_INET, SOCK_STREAM, 0), second = socket(AF_INET, SOCK_STREAM, 0);
	int third = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in to = name_of(l);
	show("of a bound socket", setsockopt(l, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
	show("listen", listen(l, 5));
	show("of a listener", setsockopt(l, SOL_SOCKET, SO_KEEPALIVE, &seven, sizeof seven));
	switches("listener", l);
	show("nodelay", setsockopt(first, IPPROTO_TCP, TCP_NODELAY, &seven, sizeof seven));
	show("keepalive", setsockopt(first, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
	show("off", setsockopt(first, SOL_SOCKET, SO_KEEPALIVE, &off, sizeof off));
	show("keepalive", setsockopt(second, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
	show("connect", connect(first, (struct sockaddr *)&to, sizeof to));
	switches("first", first);
	switches("second before connect", second);
	show("nodelay", setsockopt(second, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
	show("connect", connect(second, (struct sockaddr *)&to, sizeof to));
	switches("second", second);
	show("off", setsockopt(second, IPPROTO_TCP, TCP_NODELAY, &off, sizeof off));
	switches("second", second);
	switches("accepted", accept(l, NULL, NULL));
	show("short", setsockopt(third, IPPROTO_TCP, TCP_NODELAY, &on, 1));
	switches("third", third);
}

/* more makes datagrams of several calls. */
static void more(void)
{
	int a = bound(SOCK_DGRAM), b = socket(AF_INET, SOCK_DGRAM, 0), c = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in to = name_of(a);
	static char big[60000];
	char data[100];
	fcntl(a, F_SETFL, O_NONBLOCK);
	show("connect", aim(b, &to));
	show("one", send(b, "one", 3, MSG_MORE));
	show("two", send(b, "two", 3, MSG_MORE));
	pause_ms(SHORT);
	show("nothing yet", recv(a, data, sizeof data, 0));
	show("three", write(b, "three", 5));
	await(a, POLLIN);
	long n = show("all", recv(a, data, sizeof data, 0));
	printf("%.*s\n", (int)n, data);
	show("none", recv(a, data, sizeof data, 0));
	show("with an address", sendto(c, "x", 1, MSG_MORE, (struct sockaddr *)&to, sizeof to));
	show("end", sendto(c, "yz", 2, 0, (struct sockaddr *)&to, sizeof to));
	await(a, POLLIN);
	n = show("all", recv(a, data, sizeof data, 0));
	printf("%.*s\n", (int)n, data);
	show("long", send(b, big, sizeof big, MSG_MORE));
	show("too long", send(b, big, sizeof big, 0));
	show("after it", send(b, "new", 3, 0));
	await(a, POLLIN);
	n = show("all", recv(a, data, sizeof data, 0));
	printf("%.*s\n", (int)n, data);
}

/* devices asks for the device of sockets, which the node has to look for among those of the stack. */
static void devices(void)
{
	for (int i = 0; i < 2; i++) {
		int fd = socket(AF_INET, i == 0 ? SOCK_STREAM : SOCK_DGRAM, 0);
		char name[IF_NAMESIZE] = "";
		socklen_t len = sizeof name;
		show("any", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "", 1));
		show("none", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "no-such", 8));
		show("get", getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len));
		show("length", len);
		close(fd);
	}
}

/*
 * await_error waits for the ICMP error of a datagram. The library looks for one at a send only where the last send was a millisecond ago, which is
 * as much as a tick of the coarse clock later (failed_before in pending.c).
 */
static void await_error(int fd)
{
	await(fd, 0);
	pause_ms(SHORT);
}

/* plain_calls reads and writes datagrams by calls of files, and asks for names and options in odd states. */
static void plain_calls(void)
{
	int a = bound(SOCK_DGRAM), b = bound(SOCK_DGRAM), c = socket(AF_INET, SOCK_DGRAM, 0), s = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	struct sockaddr_in to = name_of(a), closed = at("127.0.0.1", 9);
	char data[100];
	struct iovec parts[2] = {{data, 2}, {data + 2, 90}};
	int value = -1;
	socklen_t len = sizeof value;
	fcntl(a, F_SETFL, O_NONBLOCK);
	fcntl(b, F_SETFL, O_NONBLOCK);
	put(b, a, "hello");
	put(b, a, "there");
	put(b, a, "");
	put(b, a, "cut");
	await(a, POLLIN);
	long n = show("read", read(a, data, sizeof data));
	printf("%.*s\n", (int)n, data);
	await(a, POLLIN);
	n = show("readv", readv(a, parts, 2));
	printf("%.*s\n", (int)n, data);
	await(a, POLLIN);
	show("read of nothing", read(a, data, sizeof data));
	await(a, POLLIN);
	show("read of a part", read(a, data, 1));
	show("write", write(a, "x", 1));
	show("writev", writev(a, parts, 1));
	put(b, a, "again");
	await(a, POLLIN);
	show("read of a duplicate", read(dup(a), data, sizeof data));
	show("read without any", read(a, data, sizeof data));
	show("sendto of nothing", sendto(c, NULL, 0, 0, (struct sockaddr *)&to, sizeof to));
	printf("it has a port: %d\n", name_of(c).sin_port != 0);
	show("connect to nobody", aim(b, &closed));
	show("write", write(b, "x", 1));
	await_error(b);
	show("write", write(b, "x", 1));
	show("read", read(b, data, sizeof data));
	show("send", send(b, "x", 1, 0));
	await_error(b);
	show("send", send(b, "x", 1, 0));
	show("recv", recv(b, data, sizeof data, 0));
	show("AF_UNSPEC of a fresh stream", connect(s, &none, sizeof none));
	fcntl(s, F_SETFL, O_NONBLOCK);
	show("connect", aim(s, &closed));
	await(s, POLLOUT);
	show("error", error_of(s));
	show("TCP_NODELAY", getsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, &len));
	printf("%d\n", value);
	show("SO_KEEPALIVE", getsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &value, &len));
	printf("%d\n", value);
}

int main(int n, char **args)
{
	const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
		{"long-options", long_options}, {"error-queue", error_queue}, {"woken", woken}, {"disconnected", disconnected},
		{"refusals", refusals}, {"ends", ends}, {"control", control_messages}, {"lengths", lengths}, {"early-options", early_options},
		{"plain-calls", plain_calls}, {"more", more}, {"devices", devices},
	};
	signal(SIGPIPE, SIG_IGN);
	alarm(80);
	for (size_t i = 0; n == 2 && i < sizeof parts / sizeof *parts; i++)
		if (strcmp(parts[i].name, args[1]) == 0) {
			parts[i].run();
			return 0;
		}
	return 1;
}
