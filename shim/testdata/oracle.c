/*
 * oracle.c - what calls on sockets give in states that programs get into: a line for each, with results and errno. It has both
 * ends, on 127.0.0.1. TestOracle runs it on the kernel's stack and by the library, and compares.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "calls.h"

#define SOON 20000 /* ms, for what has to happen */

static volatile int pipes;

static void on_pipe(int sig)
{
	(void)sig;
	pipes++;
}

/* show prints a result, with the errno of a failure. */
static int stream(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0)
		exit(2);
	return fd;
}

static void nonblocking(int fd, bool on)
{
	fcntl(fd, F_SETFL, O_RDWR | (on ? O_NONBLOCK : 0));
}

static struct sockaddr_in at(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

static int port_of(int fd)
{
	struct sockaddr_in a;
	socklen_t n = sizeof a;
	return getsockname(fd, (struct sockaddr *)&a, &n) == 0 ? ntohs(a.sin_port) : -1;
}

static int bound(int port)
{
	int fd = stream(), one = 1;
	struct sockaddr_in a = at(port);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) != 0)
		exit(3);
	return fd;
}

static int listener(int port)
{
	int fd = bound(port);
	if (listen(fd, 8) != 0)
		exit(4);
	return fd;
}

static int join(int fd, int port)
{
	struct sockaddr_in a = at(port);
	return connect(fd, (struct sockaddr *)&a, sizeof a);
}

static int events(int fd, int want, int ms)
{
	struct pollfd p = {.fd = fd, .events = (short)want};
	return poll(&p, 1, ms) >= 0 ? p.revents : -1;
}

/* await waits for an event of poll(2). */
static void await(int fd, int want)
{
	for (int ms = 0; ms < SOON && (events(fd, want, 10) & want) == 0; ms += 10)
		;
}

/*
 * await_end waits for the end of a connection that fails. Where the node closes its end, the kernel wakes the program before it frees the bytes
 * that keep the socket from being writable: POLLOUT comes some microseconds behind POLLHUP and POLLERR.
 */
static void await_end(int fd)
{
	await(fd, POLLHUP);
	await(fd, POLLOUT);
}

/* pair makes a connection. */
static void pair(int *client, int *server)
{
	int l = listener(0);
	*client = stream();
	if (join(*client, port_of(l)) != 0 || (*server = accept(l, NULL, NULL)) < 0)
		exit(5);
	close(l);
}

/* closed_port returns a port where nothing listens, and the socket that keeps it. */
static int closed_port(int *keeper)
{
	*keeper = bound(0);
	return port_of(*keeper);
}

static void refused(void)
{
	int keeper, port = closed_port(&keeper), fd = stream();
	show("refused", join(fd, port));
	show("refused again", join(fd, port));
	show("SO_ERROR after it", error_of(fd));
	show("getpeername", getpeername(fd, (struct sockaddr *)&(struct sockaddr_in){0}, &(socklen_t){sizeof(struct sockaddr_in)}));
	close(keeper);
	int one = 1, v = 0;
	socklen_t n = sizeof v;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	int l = listener(port);
	show("the same socket, once somebody listens", join(fd, port));
	int peer = accept(l, NULL, NULL);
	show("send on it", send(fd, "abc", 3, 0));
	char b[8];
	show("and receive", recv(peer, b, sizeof b, 0));
	show("its option", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &v, &n) == 0 ? v : -1);
	show("connect once more", join(fd, port));
	show("close-on-exec", fcntl(fd, F_GETFD));
	close(fd);
	close(peer);
	close(l);
}

static void refused_later(void)
{
	int keeper, port = closed_port(&keeper), fd = stream();
	nonblocking(fd, true);
	show("nonblocking", join(fd, port));
	await_end(fd);
	show("events", events(fd, POLLIN | POLLOUT | POLLRDHUP, 0));
	show("connect has the cause", join(fd, port));
	close(fd);
	fd = stream();
	nonblocking(fd, true);
	show("nonblocking", join(fd, port));
	await_end(fd);
	show("SO_ERROR", error_of(fd));
	show("SO_ERROR again", error_of(fd));
	show("connect after the cause was taken", join(fd, port));
	close(fd);
	close(keeper);
}

/* A connection that fails does not look complete: POLLOUT alone. poll(2) looks at one after the other, so that the second look counts. */
static void refused_at_once(void)
{
	int keeper, port = closed_port(&keeper), wrong = 0;
	for (int i = 0; i < 300; i++) {
		int fd = stream(), seen = 0;
		nonblocking(fd, true);
		join(fd, port);
		for (int tries = 0; tries < 10000000 && seen == 0; tries++)
			seen = events(fd, POLLOUT, 0);
		if (seen == POLLOUT)
			seen = events(fd, POLLOUT, 0);
		wrong += (seen & (POLLERR | POLLHUP)) == 0;
		close(fd);
	}
	show("looks complete", wrong);
	close(keeper);
}

static void connected(void)
{
	int l = listener(0), fd = stream();
	nonblocking(fd, true);
	show("nonblocking", join(fd, port_of(l)));
	await(fd, POLLOUT);
	show("connect, connected", join(fd, port_of(l)));
	show("connect, known", join(fd, port_of(l)));
	int peer = accept(l, NULL, NULL);
	show("connect a listener", join(l, port_of(l)));
	show("connect what was accepted", join(peer, port_of(l)));
	show("listen", listen(fd, 1));
	show("bind", bind(fd, (struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET}, sizeof(struct sockaddr_in)));
	show("accept on a connection", accept(fd, NULL, NULL));
	close(peer);
	await(fd, POLLIN);
	show("connect after the end", join(fd, port_of(l)));
	close(fd);
	close(l);
}

/* ends looks at a connection whose peer has closed it, and resets it when something comes. */
static void ends(const char *by, bool unread)
{
	int fd, peer;
	char b[8];
	pair(&fd, &peer);
	if (unread)
		send(peer, "xyz", 3, 0);
	close(peer);
	await(fd, unread ? POLLIN : POLLRDHUP); /* docs/shim.md: rings show the end behind the bytes */
	if (unread)
		show("bytes before the end", recv(fd, b, sizeof b, 0));
	await(fd, POLLRDHUP);
	show("recv", recv(fd, b, sizeof b, 0));
	show("read", read(fd, b, sizeof b));
	pipes = 0;
	show("the first write", strcmp(by, "write") == 0 ? write(fd, "a", 1) : send(fd, "a", 1, 0));
	await(fd, POLLHUP);
	show("recv after the reset", recv(fd, b, sizeof b, 0));
	show("read after the reset", read(fd, b, sizeof b));
	show("the second write", strcmp(by, "write") == 0 ? write(fd, "a", 1) : send(fd, "a", 1, 0));
	show("SIGPIPE", pipes);
	show("without signal", send(fd, "a", 1, MSG_NOSIGNAL));
	show("SIGPIPE", pipes);
	close(fd);
}

/* resets looks at a connection whose peer resets it. */
static void resets(void)
{
	int fd, peer;
	char b[8];
	struct linger now = {1, 0};
	pair(&fd, &peer);
	send(fd, "unread", 6, 0);
	await(peer, POLLIN);
	close(peer); /* with bytes unread */
	await(fd, POLLHUP);
	show("events", events(fd, POLLIN | POLLOUT | POLLRDHUP, 0) & ~(POLLIN | POLLOUT | POLLRDHUP));
	show("recv", recv(fd, b, sizeof b, 0));
	show("recv again", recv(fd, b, sizeof b, 0));
	show("send", send(fd, "a", 1, MSG_NOSIGNAL));
	close(fd);
	pair(&fd, &peer);
	setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	close(peer);
	await(fd, POLLHUP);
	show("SO_ERROR after SO_LINGER of 0", error_of(fd));
	close(fd);
	pair(&fd, &peer);
	send(fd, "unread", 6, 0);
	await(peer, POLLIN);
	send(peer, "words", 5, 0); /* what was written before the close arrives before the reset */
	close(peer);
	await(fd, POLLHUP);
	show("recv of the last words", recv(fd, b, sizeof b, 0));
	show("recv after the last words", recv(fd, b, sizeof b, 0));
	close(fd);
}

static void halves(void)
{
	int fd, peer;
	char b[8];
	pair(&fd, &peer);
	pipes = 0;
	show("shutdown", shutdown(fd, SHUT_WR));
	show("send", send(fd, "a", 1, 0));
	show("SIGPIPE", pipes);
	show("the other's recv", recv(peer, b, sizeof b, 0));
	show("the other's send", send(peer, "abc", 3, 0));
	show("recv", recv(fd, b, sizeof b, 0));
	show("shutdown again", shutdown(fd, SHUT_WR));
	show("shutdown of nothing", shutdown(fd, 7));
	show("shutdown for reading", shutdown(fd, SHUT_RD));
	show("recv", recv(fd, b, sizeof b, 0));
	close(fd);
	close(peer);
}

static void fresh(void)
{
	int fd = stream(), v = -1;
	char b[8];
	socklen_t n = sizeof v;
	pipes = 0;
	show("recv", recv(fd, b, sizeof b, 0));
	show("send", send(fd, "a", 1, 0));
	show("SIGPIPE", pipes);
	show("accept", accept(fd, NULL, NULL));
	show("SO_ERROR", error_of(fd));
	show("SO_ACCEPTCONN", getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &v, &n) == 0 ? v : -1);
	show("shutdown", shutdown(fd, SHUT_RDWR));
	close(fd);
	fd = bound(0);
	show("bind again", bind(fd, (struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET}, sizeof(struct sockaddr_in)));
	show("listen", listen(fd, 1));
	show("SO_ACCEPTCONN", getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &v, &n) == 0 ? v : -1);
	nonblocking(fd, true);
	show("accept of none", accept(fd, NULL, NULL));
	show("recv of a listener", recv(fd, b, sizeof b, 0));
	close(fd);
}

/* urgent sends an urgent byte to a socket that takes such bytes in their place (RFC 6093, 6). */
static void urgent(void)
{
	int fd, peer, one = 1, v = -1;
	socklen_t n = sizeof v;
	char b[8] = {0};
	pair(&fd, &peer);
	show("SO_OOBINLINE", getsockopt(peer, SOL_SOCKET, SO_OOBINLINE, &v, &n) == 0 ? v : -1);
	show("set", setsockopt(peer, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one));
	show("SO_OOBINLINE", getsockopt(peer, SOL_SOCKET, SO_OOBINLINE, &v, &n) == 0 ? v : -1);
	show("before", send(fd, "a", 1, 0));
	show("urgent", send(fd, "b", 1, MSG_OOB));
	show("behind", send(fd, "c", 1, 0));
	size_t got = 0;
	while (got < 3) {
		ssize_t m = recv(peer, b + got, sizeof b - got, 0);
		if (m <= 0)
			break;
		got += (size_t)m;
	}
	printf("in their order: %s\n", b);
	show("recv of urgent bytes", recv(peer, b, 1, MSG_OOB | MSG_DONTWAIT));
	close(fd);
	close(peer);
}

/* pointers gives addresses that are no memory. */
static void pointers(void)
{
	void *const bad[] = {NULL, (void *)8, (void *)-4096};
	int fd, peer;
	pair(&fd, &peer);
	send(peer, "waiting", 7, 0);
	await(fd, POLLIN);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct iovec part = {bad[i], 5};
		struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
		show("read", read(fd, bad[i], 5));
		show("recv", recv(fd, bad[i], 5, 0));
		show("readv", readv(fd, &part, 1));
		show("recvmsg", recvmsg(fd, &m, 0));
		show("write", write(fd, bad[i], 5));
		show("send", send(fd, bad[i], 5, 0));
		show("writev", writev(fd, &part, 1));
		show("sendmsg", sendmsg(fd, &m, 0));
		m.msg_iov = bad[i];
		show("sendmsg, no parts", sendmsg(fd, &m, 0));
		show("recvmsg, no parts", recvmsg(fd, &m, 0));
		show("readv, no parts", readv(fd, bad[i], 1));
		show("writev, no parts", writev(fd, bad[i], 1));
		if (bad[i] == NULL)
			continue; /* libc and its users have rules of their own for that */
		show("sendmsg of nothing", sendmsg(fd, bad[i], 0));
		show("recvmsg of nothing", recvmsg(fd, bad[i], 0));
		show("setsockopt", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, bad[i], sizeof(int)));
		show("getsockopt", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, bad[i], &(socklen_t){sizeof(int)}));
		show("getsockopt, length", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){0}, bad[i]));
		show("getsockname", getsockname(fd, bad[i], &(socklen_t){sizeof(struct sockaddr_in)}));
		show("getpeername, length", getpeername(fd, (struct sockaddr *)&(struct sockaddr_in){0}, bad[i]));
		show("ioctl", ioctl(fd, FIONREAD, bad[i]));
		int other = stream();
		show("connect", connect(other, bad[i], sizeof(struct sockaddr_in)));
		show("bind", bind(other, bad[i], sizeof(struct sockaddr_in)));
		close(other);
	}
	char b[8];
	show("nothing was lost", recv(fd, b, sizeof b, 0));
	close(fd);
	close(peer);
}

static void ended(void) { ends("send", false); }
static void ended_unread(void) { ends("send", true); }
static void ended_write(void) { ends("write", false); }

int main(int argc, char **argv)
{
	signal(SIGPIPE, on_pipe);
	setvbuf(stdout, NULL, _IOLBF, 0);
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {{"refused", refused}, {"refused-later", refused_later}, {"refused-at-once", refused_at_once},
		   {"connected", connected}, {"resets", resets}, {"halves", halves}, {"fresh", fresh},
		   {"urgent", urgent}, {"pointers", pointers}, {"ended", ended}, {"ended-unread", ended_unread}, {"ended-write", ended_write}};
	for (size_t i = 0; i < sizeof all / sizeof *all && argc == 2; i++)
		if (strcmp(argv[1], all[i].name) == 0) {
			all[i].run();
			return 0;
		}
	return 1;
}
