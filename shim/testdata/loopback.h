/* loopback.h - sockets of 127.0.0.1 that talk to each other. What a program needs and does not get ends it. */
#ifndef MILLRACE_TEST_LOOPBACK_H
#define MILLRACE_TEST_LOOPBACK_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

static inline void pause_ms(int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&t, NULL);
}

/* await waits until a socket has one of the events, an error or a hang-up. What does not come shows in the next line. */
static inline void await(int fd, int events)
{
	struct pollfd p = {.fd = fd, .events = (short)events};
	poll(&p, 1, 20000);
}

static inline struct sockaddr_in at(const char *ip, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	if (inet_pton(AF_INET, ip, &a.sin_addr) != 1)
		exit(2);
	return a;
}

static inline struct sockaddr_in name_of(int fd)
{
	struct sockaddr_in a;
	socklen_t len = sizeof a;
	if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
		exit(3);
	return a;
}

static inline int bound_at(int type, int port)
{
	struct sockaddr_in a = at("127.0.0.1", port);
	int fd = socket(AF_INET, type, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0)
		exit(4);
	return fd;
}

/* bound returns a socket at a free port of 127.0.0.1. It binds twice: Linux takes a port of its own choice away at a disconnect. */
static inline int bound(int type)
{
	int fd = bound_at(type, 0), port = ntohs(name_of(fd).sin_port);
	close(fd);
	return bound_at(type, port);
}

static inline long aim(int fd, const struct sockaddr_in *to)
{
	return connect(fd, (const struct sockaddr *)to, sizeof *to);
}

static inline long aim_at(int fd, int other)
{
	struct sockaddr_in to = name_of(other);
	return aim(fd, &to);
}

static inline void put(int fd, int to, const char *text)
{
	struct sockaddr_in a = name_of(to);
	if (sendto(fd, text, strlen(text), 0, (struct sockaddr *)&a, sizeof a) != (ssize_t)strlen(text))
		exit(5);
}

/* receive shows a datagram or bytes that must be there already, and whether the sender is from. */
static inline void receive(const char *what, int fd, int flags, int from)
{
	char b[300] = "";
	struct sockaddr_in a = {0};
	socklen_t len = sizeof a;
	long n = show(what, recvfrom(fd, b, sizeof b - 1, MSG_DONTWAIT | flags, (struct sockaddr *)&a, &len));
	if (n > 0)
		printf("  %.8s%s\n", b, from >= 0 && a.sin_port == name_of(from).sin_port ? " of the sender" : "");
}

static inline void stream_pair(int *client, int *server)
{
	int l = bound(SOCK_STREAM);
	*client = socket(AF_INET, SOCK_STREAM, 0);
	if (listen(l, 5) != 0 || aim_at(*client, l) != 0 || (*server = accept(l, NULL, NULL)) < 0)
		exit(6);
	close(l);
}

#endif
