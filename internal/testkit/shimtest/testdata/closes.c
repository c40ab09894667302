/* closes.c - programs that close what is not theirs, that have few descriptors, that are killed, or lose their node. */

#include "life.h"

#include "../../../../shim/testdata/rings.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

static void close_all(unsigned first)
{
	CHECK(syscall(SYS_close_range, first, ~0U, 0) == 0);
}

/* Files that get the numbers of what was closed are not touched. */
static void close_range_all(char **args)
{
	int fd = connected(7);
	echo(fd, "before");
	close_all(3);
	int files[600];
	for (int i = 0; i < 600; i++)
		files[i] = open(args[0], O_RDWR | O_CREAT | O_APPEND, 0600);
	for (int i = 0; i < 600; i++)
		CHECK(files[i] == i + 3);
	fd = connected(7);
	echo(fd, "behind");
	for (int i = 0; i < 600; i++)
		CHECK(fcntl(files[i], F_GETFD) >= 0);
	struct stat st;
	CHECK(stat(args[0], &st) == 0 && st.st_size == 0);
}

/*
 * A number that was closed is another file, however that was done: by number as libuv does, or by a call of libc itself, which no
 * library sees. The argument is the file.
 */
static void close_by_number(char **args)
{
	char b[16];
	long (*unseen)(long, ...);
	void *found = dlsym(dlopen("libc.so.6", RTLD_NOW), "syscall");
	memcpy(&unseen, &found, sizeof found);
	CHECK(unseen != NULL);
	int fd = connected(7);
	echo(fd, "before");
	CHECK(syscall(SYS_close, fd) == 0);
	CHECK(open(args[0], O_RDWR | O_CREAT, 0600) == fd);
	CHECK(write(fd, "a file", 6) == 6 && lseek(fd, 0, SEEK_SET) == 0 && read(fd, b, sizeof b) == 6);
	CHECK(memcmp(b, "a file", 6) == 0 && close(fd) == 0);
	for (int i = 0; i < 20; i++) {
		CHECK(connected(7) == fd);
		echo(fd, "hello");
		CHECK(syscall(SYS_write, fd, "by number", 9) == 9 && recv(fd, b, 9, MSG_WAITALL) == 9);
		CHECK(memcmp(b, "by number", 9) == 0);
		CHECK(shutdown(fd, SHUT_WR) == 0); /* a ring that has ended is the worst to keep */
		CHECK((i % 2 == 0 ? unseen : syscall)(SYS_close, fd) == 0);
	}
}

/* daemon(3) and the like: two forks, a new session, no descriptor left. The argument is the file for the result. */
static void as_daemon(char **args)
{
	int fd = connected(7);
	echo(fd, "in the foreground");
	CHECK(daemon(1, 0) == 0);
	close_all(0);
	fd = connected(7);
	CHECK(fd == 0);
	echo(fd, "in the background");
	int file = open(args[0], O_WRONLY | O_CREAT, 0600);
	CHECK(write(file, "done", 4) == 4);
	_exit(0); /* the file has the number of standard output */
}

static int listening(void)
{
	struct sockaddr_in any = address("0.0.0.0", 0);
	int fd = tcp();
	CHECK(bind(fd, (struct sockaddr *)&any, sizeof any) == 0 && listen(fd, 50) == 0);
	return fd;
}

static void to_self(int fd, int listener)
{
	struct sockaddr_in own;
	socklen_t len = sizeof own;
	CHECK(getsockname(listener, (struct sockaddr *)&own, &len) == 0);
	CHECK(connect(fd, (struct sockaddr *)&own, sizeof own) == 0);
}

/* With all numbers in use calls are EMFILE, and a connection waits in the listener's queue for a number. */
static void few_descriptors(char **args)
{
	(void)args;
	struct rlimit few = {24, 24};
	int fds[32], n = 0, l = listening();
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	while (n < 32 && (fds[n] = socket(AF_INET, SOCK_STREAM, 0)) >= 0)
		n++;
	CHECK(n > 5 && n < 24 && errno == EMFILE);
	FAILS(socket(AF_INET, SOCK_DGRAM, 0), EMFILE);
	to_self(fds[0], l);
	await(l, POLLIN);
	FAILS(accept(l, NULL, NULL), EMFILE);
	FAILS(accept(l, NULL, NULL), EMFILE);
	close(fds[1]);
	int got = accept(l, NULL, NULL);
	CHECK(got >= 0);
	CHECK(send(fds[0], "x", 1, 0) == 1);
	char b;
	CHECK(recv(got, &b, 1, 0) == 1);
	FAILS(socket(AF_INET, SOCK_STREAM, 0), EMFILE);
	for (int i = 2; i < n; i++)
		close(fds[i]);
	echo(connected(7), "with more of them");
}

/* Without a number for a control channel a socket is EMFILE, and not as without a node. */
static void no_channel(char **args)
{
	(void)args;
	struct rlimit few = {8, 8};
	int fd = tcp(), n = 0;
	struct sockaddr_in to = address(peer, 7);
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	while (open("/dev/null", O_RDONLY) >= 0)
		n++;
	CHECK(n > 0 && errno == EMFILE);
	FAILS(connect(fd, (struct sockaddr *)&to, sizeof to), EMFILE);
	close(fd + 1);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
}

/* Writes for ever. */
static void sender(char **args)
{
	static char b[32768];
	int fd = connected(atoi(args[0]));
	for (size_t i = 0; i < sizeof b; i++)
		b[i] = (char)i;
	for (;;)
		CHECK(write(fd, b, sizeof b) > 0);
}

/* Reads a little, and then no more. */
static void receiver(char **args)
{
	char b[100];
	int fd = connected(atoi(args[0]));
	CHECK(recv(fd, b, sizeof b, MSG_WAITALL) == sizeof b);
	puts("reads");
	fflush(stdout);
	for (;;)
		pause();
}

static double seconds(const struct timeval *t) { return (double)t->tv_sec + (double)t->tv_usec / 1e6; }

static double processor(void)
{
	struct rusage use;
	getrusage(RUSAGE_SELF, &use);
	return seconds(&use.ru_utime) + seconds(&use.ru_stime);
}

static double now(void)
{
	struct timeval t;
	gettimeofday(&t, NULL);
	return seconds(&t);
}

/* Servers that try again at once do not spin. */
static void dead_servers(int l, int u)
{
	char b[16];
	double begin = now(), used = processor();
	int calls = 0;
	FAILS(accept(l, NULL, NULL), ENETDOWN);
	for (; now() < begin + 1; calls += 2) {
		CHECK(accept(l, NULL, NULL) < 0 && (errno == ENETDOWN || errno == EINVAL));
		CHECK(recv(u, b, sizeof b, 0) < 0 && errno == ENETDOWN);
	}
	CHECK(calls < 100 && processor() - used < 0.5);
}

/* Nor do they spin when another node runs, to which their listener is one that has ended. */
static void dead_listener(int l)
{
	double begin = now();
	int calls = 0;
	for (; now() < begin + 0.5; calls++)
		FAILS(accept(l, NULL, NULL), EINVAL);
	CHECK(calls < 50);
}

/* polled makes a ring as one of a node that was killed while it polled it: nothing wakes it. */
static void polled(struct ring_page *page)
{
	page->direction[0].arm = RING_NOTIFY_DISARMED; /* to the node */
}

/* The node ends while the program has sockets of all kinds; a new one comes when the test says so by SIGUSR1. */
static void restart(char **args)
{
	(void)args;
	char b[16];
	sigset_t wait;
	int got, l = listening(), fd = connected(7), idle = tcp(), u = udp(), one = 1;
	struct sockaddr_in to = address(peer, 7), any = address("0.0.0.0", 0);
	int connecting = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct sockaddr_in nowhere = address("198.18.0.77", 7);
	FAILS(connect(connecting, (struct sockaddr *)&nowhere, sizeof nowhere), EINPROGRESS);
	CHECK(setsockopt(idle, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0 && bind(u, (struct sockaddr *)&any, sizeof any) == 0);
	sigemptyset(&wait);
	sigaddset(&wait, SIGUSR1);
	sigprocmask(SIG_BLOCK, &wait, NULL);
	echo(fd, "hello");
	puts("up");
	fflush(stdout);
	FAILS(recv(fd, b, sizeof b, 0), ECONNRESET);
	CHECK(so_error(fd) == 0);
	await(connecting, POLLOUT);
	CHECK(so_error(connecting) == ECONNRESET);
	each_ring(polled);
	FAILS(send(fd, "x", 1, 0), EPIPE);
	dead_servers(l, u);
	FAILS(connect(tcp(), (struct sockaddr *)&to, sizeof to), ENETDOWN);
	FAILS(connect(idle, (struct sockaddr *)&to, sizeof to), ENETDOWN);
	FAILS(socket(AF_INET, SOCK_DGRAM, 0), ENETDOWN);
	puts("down");
	fflush(stdout);
	CHECK(sigwait(&wait, &got) == 0);
	echo(connected(7), "hello again");
	CHECK(so_error(fd) == 0);
	u = udp();
	CHECK(sendto(u, "x", 1, 0, (struct sockaddr *)&to, sizeof to) == 1 && recv(u, b, sizeof b, 0) == 1);
	dead_listener(l);
	l = listening();
	fd = tcp();
	to_self(fd, l);
	CHECK(accept(l, NULL, NULL) >= 0);
}

/* Opens and closes connections: COUNT, how many of them at once, and the first of 16 ports of echo servers. */
static void many(char **args)
{
	long count = atol(args[0]);
	int n = atoi(args[1]), port = atoi(args[2]), fds[256];
	CHECK(n <= 256);
	for (long done = 0; done < count; done += n) {
		for (int i = 0; i < n; i++)
			fds[i] = connected(port + (int)(done / n) % 16);
		for (int i = 0; i < n; i++) {
			if ((done + i) % 3 == 0)
				echo(fds[i], "hello");
			if ((done + i) % 5 == 0)
				CHECK(shutdown(fds[i], SHUT_WR) == 0);
			if ((done + i) % 7 == 0) {
				struct linger l = {1, 0};
				CHECK(setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &l, sizeof l) == 0);
			}
			close(fds[i]);
		}
	}
}

const struct part closes[] = {
	{"close-range", close_range_all},
	{"close-by-number", close_by_number},
	{"daemon", as_daemon},
	{"few-descriptors", few_descriptors},
	{"no-channel", no_channel},
	{"sender", sender},
	{"receiver", receiver},
	{"restart", restart},
	{"many", many},
	{NULL, NULL},
};
