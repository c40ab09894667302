/*
 * rebinds.c - servers whose node ends and comes again, with --on-node-loss=rebind. Each answers a connection by a line and closes it:
 * the number of the process, and how many calls of accept(2) have given it nothing.
 */

#include "life.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

#define IDLE 77 /* s, of TCP_KEEPIDLE */

static int number_of(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof value;
	CHECK(getsockopt(fd, level, name, &value, &len) == 0);
	return value;
}

static int listener_at(const char *ip, const char *port, int flags)
{
	struct sockaddr_in a = address(ip, atoi(port));
	int fd = socket(AF_INET, SOCK_STREAM | flags, 0), one = 1, idle = IDLE;
	CHECK(fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) == 0 && setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof one) == 0);
	CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 50) == 0);
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) == 0); /* the last value counts */
	return fd;
}

static int misses; /* of the process */

/* serve_one serves a connection if there is one. Whatever happens to the node, accept(2) gives one or says that there is none. */
static bool serve_one(int l, int number)
{
	char line[64];
	int fd = accept(l, NULL, NULL);
	if (fd < 0) {
		CHECK(errno == EAGAIN || errno == EINTR);
		misses++;
		return false;
	}
	CHECK(number_of(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
	CHECK(number_of(fd, IPPROTO_TCP, TCP_KEEPIDLE) == IDLE);
	int n = snprintf(line, sizeof line, "%d %d\n", number, misses);
	(void)!write(fd, line, (size_t)n); /* a client of before may be gone */
	close(fd);
	return true;
}

/* serve_by_epoll waits with the events that it asks for, and looks that they come with what it gave. */
static void serve_by_epoll(int l, int number, uint32_t how)
{
	int epoll = epoll_create1(0);
	struct epoll_event want = {.events = EPOLLIN | how, .data.u64 = 0xfeed0000u + (unsigned)l}, got;
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, l, &want) == 0);
	for (;;) {
		int n = epoll_wait(epoll, &got, 1, -1);
		CHECK(n == 1 || errno == EINTR);
		if (n != 1)
			continue;
		CHECK(got.data.u64 == want.data.u64);
		while (serve_one(l, number) && (how & EPOLLET) != 0)
			;
		CHECK((fcntl(l, F_GETFD) & FD_CLOEXEC) != 0 && (fcntl(l, F_GETFL) & O_NONBLOCK) != 0);
	}
}

static void serve_by_poll(int l, int number)
{
	for (;;) {
		struct pollfd p = {.fd = l, .events = POLLIN};
		if (poll(&p, 1, -1) == 1)
			serve_one(l, number);
	}
}

static struct {
	int listener, number;
} of_threads;

static void *serve_in_thread(void *unused)
{
	(void)unused;
	for (;;)
		serve_one(of_threads.listener, of_threads.number);
	return NULL;
}

static void serve(const char *how, int l, int number)
{
	pthread_t thread;
	if (strcmp(how, "level") == 0)
		serve_by_epoll(l, number, 0);
	if (strcmp(how, "edge") == 0)
		serve_by_epoll(l, number, EPOLLET);
	if (strcmp(how, "exclusive") == 0)
		serve_by_epoll(l, number, EPOLLEXCLUSIVE);
	if (strcmp(how, "poll") == 0)
		serve_by_poll(l, number);
	of_threads.listener = l;
	of_threads.number = number;
	CHECK(strcmp(how, "threads") != 0 || pthread_create(&thread, NULL, serve_in_thread, NULL) == 0);
	for (;;)
		serve_one(l, number);
}

static pid_t worker(const char *how, int l, int number)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(how, l, number);
	}
	return child;
}

/* A server with two workers, and one more at SIGUSR1. The master holds the listener, and never accepts: PORT HOW. */
static void rebinding(char **args)
{
	bool blocks = strcmp(args[1], "blocking") == 0 || strcmp(args[1], "threads") == 0;
	int l = listener_at("0.0.0.0", args[0], SOCK_CLOEXEC | (blocks ? 0 : SOCK_NONBLOCK)), got, number = 0;
	sigset_t wait;
	sigemptyset(&wait);
	sigaddset(&wait, SIGUSR1);
	worker(args[1], l, ++number);
	worker(args[1], l, ++number);
	sigprocmask(SIG_BLOCK, &wait, NULL);
	puts("listens");
	fflush(stdout);
	for (;;) {
		CHECK(sigwait(&wait, &got) == 0);
		worker(args[1], l, ++number);
	}
}

/* The listener is that of a program of before: FD. */
static void inherited(char **args)
{
	struct sockaddr_in a;
	socklen_t len = sizeof a;
	int l = atoi(args[0]);
	for (;;) {
		int fd = accept(l, NULL, NULL);
		CHECK(fd >= 0 && getsockname(l, (struct sockaddr *)&a, &len) == 0);
		(void)!write(fd, "1 0\n", 4);
		close(fd);
	}
}

static void by_exec(char **args)
{
	char number[16];
	snprintf(number, sizeof number, "%d", listener_at("0.0.0.0", args[0], 0));
	puts("listens");
	fflush(stdout);
	execl("/proc/self/exe", "life", "rebinding-inherited", number, NULL);
	CHECK(false);
}

/* The node chooses the port, which stays. */
static void any_port(char **args)
{
	(void)args;
	struct sockaddr_in a;
	socklen_t len = sizeof a;
	int l = listener_at("198.18.0.1", "0", 0);
	CHECK(getsockname(l, (struct sockaddr *)&a, &len) == 0);
	printf("listens at %d.\n", ntohs(a.sin_port));
	fflush(stdout);
	for (;;)
		serve_one(l, 1);
}

/* The program gives up its rights once it has a low port: PORT. */
static void low_port(char **args)
{
	int l = listener_at("198.18.0.1", args[0], 0);
	CHECK(setgid(70001) == 0 && setuid(70001) == 0);
	puts("listens");
	fflush(stdout);
	for (;;)
		serve_one(l, 1);
}

/* A listener that another process has shut down stays so. */
static void shut(char **args)
{
	int l = listener_at("0.0.0.0", args[0], 0);
	pid_t child = fork();
	if (child == 0) {
		CHECK(shutdown(l, SHUT_RDWR) == 0);
		_exit(0);
	}
	reap(child);
	FAILS(accept(l, NULL, NULL), EINVAL);
	FAILS(accept(l, NULL, NULL), EINVAL);
}

/* SO_RCVTIMEO ends a wait for the node: PORT. */
static void timeout(char **args)
{
	struct timeval limit = {.tv_usec = 300000};
	int l = listener_at("0.0.0.0", args[0], 0), got;
	sigset_t wait;
	CHECK(setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	sigemptyset(&wait);
	sigaddset(&wait, SIGUSR1);
	sigprocmask(SIG_BLOCK, &wait, NULL);
	puts("listens");
	fflush(stdout);
	CHECK(sigwait(&wait, &got) == 0);
	FAILS(accept(l, NULL, NULL), EAGAIN);
}

/* A server of datagrams, which answers with what it got and the destination's address by IP_PKTINFO: PORT HOW. */
static void datagrams(char **args)
{
	struct sockaddr_in a = address("0.0.0.0", atoi(args[0])), from;
	int fd = udp(), one = 1;
	char b[64], control[128];
	CHECK(setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof one) == 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
	puts("listens");
	fflush(stdout);
	bool batch = strcmp(args[1], "batch") == 0, waits = strcmp(args[1], "poll") != 0;
	for (;;) {
		struct iovec part = {b, sizeof b};
		struct mmsghdr m = {.msg_hdr = {&from, sizeof from, &part, 1, control, sizeof control, 0}};
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (!waits)
			CHECK(poll(&p, 1, -1) == 1);
		ssize_t n = batch ? recvmmsg(fd, &m, 1, 0, NULL) : recvmsg(fd, &m.msg_hdr, waits ? 0 : MSG_DONTWAIT);
		if (n < 0) {
			CHECK(errno == EAGAIN && !waits);
			continue;
		}
		struct cmsghdr *c = CMSG_FIRSTHDR(&m.msg_hdr);
		CHECK(c != NULL && c->cmsg_type == IP_PKTINFO);
		CHECK(sendto(fd, b, batch ? m.msg_len : (size_t)n, 0, (struct sockaddr *)&from, sizeof from) > 0);
	}
}

const struct part rebinds[] = {
	{"rebinding", rebinding},
	{"rebinding-inherited", inherited},
	{"rebinding-exec", by_exec},
	{"rebinding-low", low_port},
	{"rebinding-any", any_port},
	{"rebinding-shut", shut},
	{"rebinding-timeout", timeout},
	{"rebinding-datagrams", datagrams},
	{NULL, NULL},
};
