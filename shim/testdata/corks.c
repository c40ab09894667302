/*
 * corks.c - datagrams of several calls (MSG_MORE, UDP_CORK): a line for each call. Tests run it on the kernel's stack, by the library and
 * under a supervisor, and compare.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "loopback.h"

#define MANY 150

static char big[60000];

/* arrived shows all datagrams that have come, behind a moment in which more would. */
static void arrived(int fd)
{
	char data[200];
	long n;
	pause_ms(100);
	while ((n = recv(fd, data, sizeof data, MSG_DONTWAIT | MSG_TRUNC)) >= 0)
		printf("  has come: %ld %.*s\n", n, (int)(n < 40 ? n : 40), data);
}

static long cork(int fd, int on)
{
	return setsockopt(fd, IPPROTO_UDP, UDP_CORK, &on, sizeof on);
}

static void connected(void)
{
	int a = bound(SOCK_DGRAM), b = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in to = name_of(a);
	struct iovec parts[] = {{"par", 3}, {"ts", 2}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
	show("connect", aim(b, &to));
	show("one", send(b, "one", 3, MSG_MORE));
	show("two", sendmsg(b, &m, MSG_MORE));
	show("none", send(b, "", 0, MSG_MORE));
	arrived(a);
	show("three", send(b, "three", 5, 0));
	arrived(a);
	show("piece", send(b, "piece", 5, MSG_MORE));
	show("write", write(b, "write", 5));
	arrived(a);
	show("behind it", send(b, "next", 4, 0));
	show("long", send(b, big, sizeof big, MSG_MORE));
	show("too long", send(b, big, sizeof big, MSG_MORE));
	show("after it", send(b, "new", 3, 0));
	show("empty", send(b, "", 0, MSG_MORE));
	show("its end", send(b, "end", 3, 0));
	arrived(a);
}

static void unconnected(void)
{
	int a = bound(SOCK_DGRAM), c = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in to = name_of(a);
	struct sockaddr *name = (struct sockaddr *)&to;
	struct iovec part = {"batch", 5};
	struct mmsghdr batch[3];
	show("to nobody", sendto(c, "x", 1, MSG_MORE, NULL, 0));
	show("one", sendto(c, "one", 3, MSG_MORE, name, sizeof to));
	show("two", sendto(c, "two", 3, 0, name, sizeof to));
	arrived(a);
	for (int i = 0; i < 3; i++)
		batch[i] = (struct mmsghdr){.msg_hdr = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1}};
	show("sendmmsg", sendmmsg(c, batch, 3, MSG_MORE));
	arrived(a);
	struct msghdr nameless = {.msg_iov = &part, .msg_iovlen = 1};
	show("without an address", sendmsg(c, &nameless, 0));
	arrived(a);
	show("again", sendmsg(c, &nameless, 0));
	show("plain", sendto(c, "plain", 5, 0, name, sizeof to));
	arrived(a);
}

static void option(void)
{
	int a = bound(SOCK_DGRAM), b = socket(AF_INET, SOCK_DGRAM, 0), value = -1;
	struct sockaddr_in to = name_of(a);
	socklen_t len = sizeof value;
	show("connect", aim(b, &to));
	show("before", send(b, "before", 6, 0));
	show("cork", cork(b, 7));
	show("get", getsockopt(b, IPPROTO_UDP, UDP_CORK, &value, &len));
	show("value", value);
	show("one", send(b, "one", 3, 0));
	show("two", write(b, "two", 3));
	show("more", send(b, "more", 4, MSG_MORE));
	show("three", send(b, "three", 5, 0));
	arrived(a);
	show("uncork", cork(b, 0));
	arrived(a);
	show("nothing waits", cork(b, 0));
	show("after", send(b, "after", 5, 0));
	arrived(a);
	show("cork", cork(b, 1));
	show("long", send(b, big, sizeof big, 0));
	show("too long", send(b, big, sizeof big, 0));
	show("uncork", cork(b, 0));
	show("piece", send(b, "piece", 5, MSG_MORE));
	show("uncork", cork(b, 0));
	arrived(a);
	for (int i = 0; i < MANY; i++) /* more than the node reads at once */
		send(b, "many", 4, 0);
	cork(b, 1);
	send(b, "corked", 6, 0);
	send(b, "bytes", 5, 0);
	cork(b, 0);
	int count = 0, whole = 0;
	char data[100];
	for (int tries = 0; tries < 100 && count < MANY + 1; tries++) {
		pause_ms(20);
		for (long n; (n = recv(a, data, sizeof data, MSG_DONTWAIT)) > 0; count++)
			whole += n == 11;
	}
	show("all", count);
	show("whole", whole);
}

/* Before bind, and in two processes. */
static void shared(void)
{
	int a = bound(SOCK_DGRAM), b = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in to = name_of(a);
	show("cork", cork(b, 1));
	show("connect", aim(b, &to));
	show("one", send(b, "one", 3, 0));
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		_exit(send(b, "child", 5, 0) == 5 ? 0 : 1);
	int status = -1;
	waitpid(child, &status, 0);
	show("child", status);
	show("uncork", cork(b, 0));
	arrived(a);
}

/* Connected elsewhere with bytes that wait: Linux keeps them for the peer of before, with those that follow. The node sends them. */
static void moved(void)
{
	int a = bound(SOCK_DGRAM), other = bound(SOCK_DGRAM), b = socket(AF_INET, SOCK_DGRAM, 0);
	show("connect", aim_at(b, a));
	show("piece", send(b, "piece", 5, MSG_MORE));
	show("elsewhere", aim_at(b, other));
	show("new", send(b, "new", 3, 0));
	arrived(a);
	puts("other");
	arrived(other);
}

int main(int argc, char **argv)
{
	const struct {
		const char *name;
		void (*run)(void);
	} all[] = {{"connected", connected}, {"unconnected", unconnected}, {"option", option}, {"shared", shared}, {"moved", moved}};
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (argc < 2 || strcmp(argv[1], all[i].name) == 0)
			all[i].run();
	return 0;
}
