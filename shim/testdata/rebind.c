/*
 * rebind.c - sockets that are used again: bind(2), connect(2) and getsockopt(2) after a disconnect and after a connection that has failed.
 * It prints a line for each call, with its result and errno. TestRebind runs it on the kernel's stack and by the library, and compares.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "calls.h"

#define SOON 20000 /* ms, for what has to happen */

static struct sockaddr_in at(const char *ip, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	if (inet_pton(AF_INET, ip, &a.sin_addr) != 1)
		exit(2);
	return a;
}

static struct sockaddr_in name_of(int fd)
{
	struct sockaddr_in a = {0};
	socklen_t len = sizeof a;
	if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
		printf("getsockname: %s\n", strerrorname_np(errno));
	return a;
}

static int port_of(int fd) { return ntohs(name_of(fd).sin_port); }

/* show_name prints the address, and whether the port is 0, the one that it was, or another. */
static void show_name(int fd, int was)
{
	char ip[INET_ADDRSTRLEN];
	struct sockaddr_in a = name_of(fd);
	int port = ntohs(a.sin_port);
	inet_ntop(AF_INET, &a.sin_addr, ip, sizeof ip);
	printf("  name %s, %s\n", ip, port == 0 ? "no port" : port == was ? "the port of before" : "a port");
}

static long bind_at(int fd, const char *ip, int port)
{
	struct sockaddr_in a = at(ip, port);
	return bind(fd, (struct sockaddr *)&a, sizeof a);
}

static long aim(int fd, int port)
{
	struct sockaddr_in to = at("127.0.0.1", port);
	return connect(fd, (struct sockaddr *)&to, sizeof to);
}

static long disconnect(int fd)
{
	struct sockaddr_in none = {.sin_family = AF_UNSPEC};
	return connect(fd, (struct sockaddr *)&none, sizeof none);
}

/* unused returns a port that was free a moment ago. */
static int unused(int type)
{
	int fd = socket(AF_INET, type, 0);
	if (fd < 0 || bind_at(fd, "127.0.0.1", 0) != 0)
		exit(3);
	int port = port_of(fd);
	close(fd);
	return port;
}

static int listener(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || bind_at(fd, "127.0.0.1", 0) != 0 || listen(fd, 5) != 0)
		exit(4);
	return fd;
}

/* disconnected disconnects a UDP socket that was bound to ip, unless that is NULL. */
static void disconnected(const char *ip, int port)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), peer = socket(AF_INET, SOCK_DGRAM, 0);
	char b[8];
	printf("%s\n", ip == NULL ? "not bound" : port == 0 ? "bound to a free port" : "bound");
	if (bind_at(peer, "127.0.0.1", 0) != 0)
		exit(5);
	if (ip != NULL)
		show("bind", bind_at(fd, ip, port));
	int was = port_of(fd);
	show("disconnect before", disconnect(fd));
	show_name(fd, was);
	show("connect", aim(fd, port_of(peer)));
	was = port_of(fd);
	show("bind of a connected socket", bind_at(fd, "127.0.0.1", 0));
	show("disconnect", disconnect(fd));
	show_name(fd, was);
	show("disconnect again", disconnect(fd));
	show("bind", bind_at(fd, "127.0.0.1", 0));
	show_name(fd, -1);
	show("bind again", bind_at(fd, "127.0.0.1", 0));
	struct sockaddr_in to = name_of(fd);
	show("sendto", sendto(peer, "abc", 3, 0, (struct sockaddr *)&to, sizeof to));
	struct pollfd p = {.fd = fd, .events = POLLIN};
	show("poll", poll(&p, 1, SOON));
	show("recv", recv(fd, b, sizeof b, MSG_DONTWAIT));
	close(fd);
	close(peer);
}

/* resent sends by a disconnected socket, which gets a port for that. */
static void resent(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), peer = socket(AF_INET, SOCK_DGRAM, 0);
	char b[8];
	if (bind_at(peer, "127.0.0.1", 0) != 0 || aim(fd, port_of(peer)) != 0)
		exit(6);
	int was = port_of(fd);
	show("disconnect", disconnect(fd));
	show_name(fd, was);
	struct sockaddr_in to = at("127.0.0.1", port_of(peer)), from;
	socklen_t len = sizeof from;
	show("sendto", sendto(fd, "abc", 3, 0, (struct sockaddr *)&to, sizeof to));
	show_name(fd, -1);
	show("recvfrom", recvfrom(peer, b, sizeof b, 0, (struct sockaddr *)&from, &len));
	show("its port", ntohs(from.sin_port) == port_of(fd));
	show("bind", bind_at(fd, "127.0.0.1", 0));
	show("connect", aim(fd, port_of(peer)));
	show("send", send(fd, "de", 2, 0));
	show("recv", recv(peer, b, sizeof b, 0));
}

static void datagrams(void)
{
	disconnected(NULL, 0);
	disconnected("0.0.0.0", 0);
	disconnected("127.0.0.1", 0);
	disconnected("127.0.0.1", unused(SOCK_DGRAM));
	disconnected("0.0.0.0", unused(SOCK_DGRAM));
	resent();
}

static const struct {
	const char *name;
	int level, option, value;
} options[] = {
	{"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1},	   {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1},
	{"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 77},   {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 12345},
	{"IP_TOS", IPPROTO_IP, IP_TOS, 0x10},		   {"IP_TTL", IPPROTO_IP, IP_TTL, 33},
	{"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1},	   {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, 3},
};

static void set_options(int fd)
{
	struct timeval t = {.tv_sec = 17};
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		if (setsockopt(fd, options[i].level, options[i].option, &options[i].value, sizeof(int)) != 0)
			printf("setsockopt %s: %s\n", options[i].name, strerrorname_np(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
}

static void show_options(int fd)
{
	struct timeval t = {0};
	socklen_t len = sizeof t;
	for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
		int value = -1;
		socklen_t n = sizeof value;
		long result = getsockopt(fd, options[i].level, options[i].option, &value, &n);
		if (result != 0 || value != options[i].value)
			printf("  %s: %ld, value %d, %s\n", options[i].name, result, value, result != 0 ? strerrorname_np(errno) : "");
	}
	if (getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, &len) != 0 || t.tv_sec != 17)
		printf("  SO_RCVTIMEO: %ld\n", (long)t.tv_sec);
}

static void nonblocking(int fd) { fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK); }

/* goes_on connects the socket after all, and sends. Its peer sees the port. */
static void goes_on(int fd)
{
	char b[8];
	int l = listener(), epoll = epoll_create1(0);
	struct epoll_event want = {.events = EPOLLOUT, .data.u32 = 4711}, got = {0};
	struct sockaddr_in from;
	socklen_t len = sizeof from;
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &want);
	long result = show("connect to a listener", aim(fd, port_of(l)));
	if (result != 0 && errno != EINPROGRESS)
		return;
	for (int ms = 0; ms < SOON; ms += 10)
		if (epoll_wait(epoll, &got, 1, 10) == 1 && (got.events & EPOLLHUP) == 0)
			break;
	printf("events %#x of %u, SO_ERROR %d\n", got.events, got.data.u32, error_of(fd));
	int s = accept(l, (struct sockaddr *)&from, &len);
	show("the port", ntohs(from.sin_port) == port_of(fd));
	show_options(fd);
	show("bind", bind_at(fd, "127.0.0.1", 0));
	show("send", send(fd, "abc", 3, 0));
	show("recv", recv(s, b, sizeof b, 0));
	show("send back", send(s, "de", 2, 0));
	struct pollfd p = {.fd = fd, .events = POLLIN};
	show("poll", poll(&p, 1, SOON));
	show("recv", recv(fd, b, sizeof b, 0));
	close(s);
	close(l);
	close(epoll);
}

/* fails makes a connection that does not block fail, with a socket that was bound to port, unless that is 0. */
static int fails(int port)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	set_options(fd);
	if (port != 0)
		show("bind", bind_at(fd, "127.0.0.1", port));
	nonblocking(fd);
	show("connect", aim(fd, unused(SOCK_STREAM)));
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	show("poll", poll(&p, 1, SOON));
	show_options(fd);
	if (port != 0)
		show_name(fd, port);
	return fd;
}

static void later(void)
{
	puts("the error by SO_ERROR, bind");
	int fd = fails(0);
	printf("SO_ERROR %d\n", error_of(fd));
	show_options(fd);
	show("listen", listen(fd, 5));
	show("bind", bind_at(fd, "127.0.0.1", 0));
	show_name(fd, -1);
	show_options(fd);
	show("bind again", bind_at(fd, "127.0.0.1", 0));
	show("connect", aim(fd, unused(SOCK_STREAM)));
	goes_on(fd);
	puts("bind before the error");
	fd = fails(0);
	show("bind", bind_at(fd, "127.0.0.1", 0));
	printf("SO_ERROR %d\n", error_of(fd));
	show("connect", aim(fd, unused(SOCK_STREAM)));
	goes_on(fd);
	puts("the error by connect");
	fd = fails(0);
	show("connect", aim(fd, unused(SOCK_STREAM)));
	show_options(fd);
	show("bind", bind_at(fd, "127.0.0.1", 0));
	goes_on(fd);
	puts("listen instead");
	fd = fails(0);
	show("connect", aim(fd, unused(SOCK_STREAM)));
	show("listen", listen(fd, 5));
	show("accept", accept(fd, NULL, NULL));
	puts("bound before");
	int port = unused(SOCK_STREAM);
	fd = fails(port);
	show("bind", bind_at(fd, "127.0.0.1", 0));
	show("connect", aim(fd, unused(SOCK_STREAM)));
	show_name(fd, port);
	goes_on(fd);
}

static void at_once(void)
{
	int port = unused(SOCK_STREAM), ports[] = {0, port};
	for (int i = 0; i < 2; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		set_options(fd);
		if (ports[i] != 0)
			show("bind", bind_at(fd, "127.0.0.1", ports[i]));
		show("connect", aim(fd, unused(SOCK_STREAM)));
		printf("SO_ERROR %d\n", error_of(fd));
		if (ports[i] != 0)
			show_name(fd, ports[i]);
		show_options(fd);
		show("bind", bind_at(fd, "127.0.0.1", 0));
		show("connect again", aim(fd, unused(SOCK_STREAM)));
		goes_on(fd);
	}
}

/* ended ends connections by AF_UNSPEC, and makes others with the same socket. */
static void ended(void)
{
	int l = listener(), fd = socket(AF_INET, SOCK_STREAM, 0);
	char b[8];
	set_options(fd);
	show("connect", aim(fd, port_of(l)));
	int s = accept(l, NULL, NULL);
	show("disconnect", disconnect(fd));
	show("recv of the peer", recv(s, b, sizeof b, 0));
	show_options(fd);
	goes_on(fd);
	puts("after a failure");
	fd = fails(0);
	show("disconnect", disconnect(fd));
	printf("SO_ERROR %d\n", error_of(fd));
	goes_on(fd);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct {
		const char *name;
		void (*run)(void);
	} all[] = {{"datagrams", datagrams}, {"later", later}, {"at-once", at_once}, {"ended", ended}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (argc == 2 && strcmp(argv[1], all[i].name) == 0) {
			alarm(60);
			all[i].run();
			return 0;
		}
	return 2;
}
