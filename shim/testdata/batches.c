/*
 * batches.c - sendmmsg(2) and recvmmsg(2) with limits, times and wrong datagrams, and options that need rights: a line for each call,
 * with its result and errno. TestBatches runs it on the kernel's stack and by the library, and compares.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

#define MOST 2000

static struct sockaddr_in to;
static struct mmsghdr batch[MOST];
static struct iovec parts[MOST];
static struct sockaddr_in names[MOST];
static char bytes[MOST][16], big[70000];

static int udp(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0)
		exit(2);
	return fd;
}

/* aim makes all of batch datagrams of 1 to 10 bytes, to the socket fd, or to where the sender is connected. */
static void aim(int fd)
{
	socklen_t len = sizeof to;
	if (fd >= 0 && getsockname(fd, (struct sockaddr *)&to, &len) != 0)
		exit(3);
	for (int i = 0; i < MOST; i++) {
		parts[i] = (struct iovec){bytes[i], (size_t)(1 + i % 10)};
		batch[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}};
		if (fd >= 0)
			batch[i].msg_hdr.msg_name = &to, batch[i].msg_hdr.msg_namelen = sizeof to;
	}
}

static void clear(void)
{
	for (int i = 0; i < MOST; i++) {
		parts[i] = (struct iovec){bytes[i], sizeof bytes[i]};
		batch[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1, .msg_name = &names[i], .msg_namelen = sizeof names[i]}};
	}
}

/* put sends n datagrams, and waits until they are there. */
static void put(int from, int fd, bool connected, int n)
{
	struct timespec pause = {0, 50000000};
	aim(connected ? -1 : fd);
	if (n > 0 && sendmmsg(from, batch, (unsigned)n, 0) != n)
		exit(4);
	nanosleep(&pause, NULL);
	clear();
}

static void lengths(int n)
{
	for (int i = 0; i < n; i++)
		printf(" %u%s", batch[i].msg_len, (batch[i].msg_hdr.msg_flags & MSG_TRUNC) != 0 ? "t" : "");
	printf("\nnamed %d\n", n > 0 ? names[n - 1].sin_family == AF_INET && batch[n - 1].msg_hdr.msg_namelen == sizeof(struct sockaddr_in) : -1);
}

/* later sends n datagrams by a child. */
static void later(int from, int fd, bool connected, int n)
{
	struct timespec pause = {0, 200000000};
	fflush(stdout);
	if (fork() != 0)
		return;
	nanosleep(&pause, NULL);
	put(from, fd, connected, n);
	_exit(0);
}

/* taken takes the error that the kernel keeps for the next call. */
static void taken(int fd)
{
	int e;
	socklen_t len = sizeof e;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len);
}

static void receives(bool connected)
{
	int from = udp(), fd = udp(), n;
	struct timespec limit;
	aim(fd);
	if (connected && connect(from, (struct sockaddr *)&to, sizeof to) != 0)
		exit(5);
	aim(from);
	if (connected && connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
		exit(5);
	clear();
	show("nothing there", recvmmsg(fd, batch, 5, MSG_DONTWAIT, NULL));
	show("none wanted", recvmmsg(fd, batch, 0, 0, NULL));
	put(from, fd, connected, 3);
	n = (int)show("fewer than wanted", recvmmsg(fd, batch, 5, MSG_DONTWAIT, NULL));
	lengths(n);
	put(from, fd, connected, 40);
	n = (int)show("more than of one call", recvmmsg(fd, batch, 40, 0, NULL));
	lengths(n);
	put(from, fd, connected, 20);
	n = (int)show("MSG_WAITFORONE", recvmmsg(fd, batch, 40, MSG_WAITFORONE, NULL));
	put(from, fd, connected, 2);
	later(from, fd, connected, 20);
	n = (int)show("until all are there", recvmmsg(fd, batch, 22, 0, NULL));
	wait(NULL);
	put(from, fd, connected, 2);
	later(from, fd, connected, 1);
	limit = (struct timespec){0, 50000000};
	n = (int)show("the time is over after the third", recvmmsg(fd, batch, 5, 0, &limit));
	printf("left %d\n", limit.tv_sec != 0 || limit.tv_nsec != 0);
	wait(NULL);
	put(from, fd, connected, 30);
	limit = (struct timespec){10, 0};
	n = (int)show("time enough", recvmmsg(fd, batch, 30, 0, &limit));
	printf("left %d\n", limit.tv_sec >= 8);
	put(from, fd, connected, 3);
	limit = (struct timespec){0, 0};
	n = (int)show("no time", recvmmsg(fd, batch, 3, 0, &limit));
	n = (int)show("the others", recvmmsg(fd, batch, 3, MSG_DONTWAIT, NULL));
	put(from, fd, connected, 1);
	limit = (struct timespec){-1, 0};
	show("a time before", recvmmsg(fd, batch, 3, MSG_DONTWAIT, &limit));
	limit = (struct timespec){0, 2000000000};
	show("no such time", recvmmsg(fd, batch, 3, MSG_DONTWAIT, &limit));
	batch[1].msg_hdr.msg_iov = (struct iovec *)8;
	show("a wrong second", recvmmsg(fd, batch, 3, MSG_DONTWAIT, NULL));
	taken(fd);
	put(from, fd, connected, 2);
	batch[1].msg_hdr.msg_iovlen = 1025;
	show("a second of too many parts", recvmmsg(fd, batch, 3, MSG_DONTWAIT, NULL));
	taken(fd);
	clear();
	show("and what is left", recvmmsg(fd, batch, 3, MSG_DONTWAIT, NULL));
	put(from, fd, connected, 12);
	for (int i = 0; i < 12; i++)
		parts[i].iov_len = 4;
	n = (int)show("short buffers", recvmmsg(fd, batch, 12, 0, NULL));
	lengths(n);
	close(fd);
	close(from);
}

static void sends(bool connected)
{
	int from = udp(), fd = udp();
	aim(fd);
	if (connected && connect(from, (struct sockaddr *)&to, sizeof to) != 0)
		exit(5);
	int at = connected ? -1 : fd;
	aim(at);
	show("none", sendmmsg(from, batch, 0, 0));
	show("more than the most", sendmmsg(from, batch, MOST, 0));
	aim(at);
	parts[2] = (struct iovec){big, sizeof big};
	show("a third that is too long", sendmmsg(from, batch, 5, 0));
	show("a first that is too long", sendmmsg(from, batch + 2, 3, 0));
	aim(at);
	batch[2].msg_hdr.msg_iov = (struct iovec *)8;
	show("a wrong third", sendmmsg(from, batch, 5, 0));
	show("a wrong first", sendmmsg(from, batch + 2, 3, 0));
	aim(at);
	batch[20].msg_hdr.msg_iovlen = 1025;
	show("too many parts, later", sendmmsg(from, batch, 40, 0));
	show("too many parts", sendmmsg(from, batch + 20, 3, 0));
	if (!connected) {
		aim(at);
		batch[1].msg_hdr.msg_name = NULL;
		batch[1].msg_hdr.msg_namelen = 0;
		show("a second without address", sendmmsg(from, batch, 3, 0));
		show("a first without address", sendmmsg(from, batch + 1, 3, 0));
	}
	close(fd);
	close(from);
}

static void option(int fd, int level, int name, int value)
{
	int got = -1;
	socklen_t len = sizeof got;
	char what[64];
	snprintf(what, sizeof what, "option %d %d of %d", level, name, value);
	show(what, setsockopt(fd, level, name, &value, sizeof value));
	show("is", getsockopt(fd, level, name, &got, &len) == 0 ? got : -1);
}

/* options needs none of the rights that root has. */
static void options(void)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {0};
	if (syscall(SYS_capset, &head, none) != 0)
		exit(6);
	int fds[] = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET, SOCK_DGRAM, 0)};
	for (int i = 0; i < 2; i++) {
		static const int priorities[] = {6, 3, 7, -1, 0x10000};
		for (size_t j = 0; j < sizeof priorities / sizeof *priorities; j++)
			option(fds[i], SOL_SOCKET, SO_PRIORITY, priorities[j]);
		option(fds[i], SOL_SOCKET, SO_MARK, 1);
		option(fds[i], SOL_SOCKET, SO_MARK, 0);
		option(fds[i], SOL_SOCKET, SO_DEBUG, 1);
		option(fds[i], SOL_SOCKET, SO_DEBUG, 0);
		option(fds[i], IPPROTO_IP, IP_TOS, 0x10);
		option(fds[i], SOL_SOCKET, SO_PRIORITY, 2);
	}
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "";
	alarm(50);
	if (strcmp(part, "receives") == 0)
		receives(false);
	else if (strcmp(part, "receives-connected") == 0)
		receives(true);
	else if (strcmp(part, "sends") == 0)
		sends(false);
	else if (strcmp(part, "sends-connected") == 0)
		sends(true);
	else
		options();
	return 0;
}
