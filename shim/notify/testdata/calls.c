/*
 * calls.c - a static program that makes system calls on sockets, well and badly, and prints what each returns. The
 * tests run it on the kernel's stack and under a supervisor, and compare.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <time.h>
#include <unistd.h>

#ifndef __GLIBC__
#define strerrorname_np strerror
#endif

static long said(const char *what, long result)
{
	printf("%s: %s\n", what, result >= 0 ? "ok" : strerrorname_np(errno));
	fflush(stdout);
	return result;
}

#define SAY(call) said(#call, call)

static struct sockaddr_in at(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

static int port_of(int fd)
{
	struct sockaddr_in a = {0};
	socklen_t len = sizeof a;
	return getsockname(fd, (struct sockaddr *)&a, &len) == 0 ? ntohs(a.sin_port) : -1;
}

static int listener(void)
{
	struct sockaddr_in a = at(0);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 8) != 0) {
		perror("listener");
		exit(1);
	}
	return fd;
}

static int client(int port)
{
	struct sockaddr_in a = at(port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
		perror("client");
		exit(1);
	}
	return fd;
}

static void descriptors(void)
{
	int fds[4] = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0),
		      socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP), socket(AF_INET6, SOCK_DGRAM, 0)};
	for (int i = 0; i < 4; i++) {
		int domain = -1, type = -1, proto = -1;
		socklen_t len = sizeof domain;
		getsockopt(fds[i], SOL_SOCKET, SO_DOMAIN, &domain, &len);
		getsockopt(fds[i], SOL_SOCKET, SO_TYPE, &type, &len);
		getsockopt(fds[i], SOL_SOCKET, SO_PROTOCOL, &proto, &len);
		printf("socket %d: cloexec %d nonblock %d domain %d type %d protocol %d length %d\n", fds[i], fcntl(fds[i], F_GETFD),
		       (fcntl(fds[i], F_GETFL) & O_NONBLOCK) != 0, domain, type, proto, (int)len);
		close(fds[i]);
	}
	SAY(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	SAY(socket(AF_INET, SOCK_STREAM | 0x100000, 0));
	SAY(socket(AF_INET, SOCK_SEQPACKET, IPPROTO_TCP));
}

static void wrong_memory(void)
{
	struct sockaddr_in a = at(1);
	struct sockaddr *bad = (struct sockaddr *)8;
	socklen_t len = sizeof a, huge = 0x7fffffff, negative = -1, small = 3;
	int fd = socket(AF_INET, SOCK_STREAM, 0), value = 1, l = listener();
	SAY(bind(fd, bad, sizeof a));
	SAY(bind(fd, (struct sockaddr *)&a, 3));
	SAY(bind(fd, (struct sockaddr *)&a, -1));
	SAY(bind(fd, (struct sockaddr *)&a, 4096));
	SAY(connect(fd, bad, sizeof a));
	SAY(connect(fd, (struct sockaddr *)&a, 2));
	SAY(connect(fd, (struct sockaddr *)&a, 1));
	SAY(connect(fd, (struct sockaddr *)&a, -1));
	a.sin_family = AF_INET6;
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	a.sin_family = 77;
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	int six = socket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET};
	SAY(bind(six, (struct sockaddr *)&in6, sizeof in6));
	SAY(bind(six, (struct sockaddr *)&in6, 16));
	SAY(connect(six, (struct sockaddr *)&in6, sizeof in6));
	close(six);
	SAY(getsockname(fd, bad, &len));
	SAY(getsockname(fd, (struct sockaddr *)&a, NULL));
	SAY(getsockname(fd, (struct sockaddr *)&a, &negative));
	SAY(getsockname(fd, (struct sockaddr *)&a, &small));
	printf("length %d\n", (int)small);
	SAY(getsockname(fd, (struct sockaddr *)&a, &huge));
	printf("length %d, family %d\n", (int)huge, a.sin_family);
	SAY(getpeername(fd, (struct sockaddr *)&a, &len));
	SAY(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, NULL, sizeof value));
	SAY(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, bad, sizeof value));
	SAY(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, 1));
	SAY(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, -1));
	len = sizeof value;
	SAY(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, bad, &len));
	SAY(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, NULL));
	len = -1;
	SAY(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len));
	len = 2;
	SAY(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len));
	printf("length %d\n", (int)len);
	char few[5] = "abcd";
	SAY(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, few, &len));
	printf("length %d, the rest %s\n", (int)len, few + 2);
	SAY(accept(fd, NULL, NULL));
	fcntl(l, F_SETFL, O_NONBLOCK); /* musl makes another try, with accept */
	SAY(accept4(l, NULL, NULL, 0x40));
	SAY(listen(-1, 1));
	SAY(listen(99, 1));
	SAY(connect(STDOUT_FILENO, (struct sockaddr *)&a, sizeof a));
	SAY(accept(STDOUT_FILENO, NULL, NULL));
	SAY(getsockopt(STDOUT_FILENO, SOL_SOCKET, SO_ERROR, &value, &len));
	close(fd);
	close(l);
}

static void streams(void)
{
	int l = listener(), value = 5;
	char text[8] = "";
	struct sockaddr_in a = {0};
	socklen_t len = sizeof a;
	int c = client(port_of(l)), own = port_of(c);
	int s = accept4(l, (struct sockaddr *)&a, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
	printf("accepted: the peer's port %d, length %d, cloexec %d, nonblock %d\n", ntohs(a.sin_port) == own, (int)len, fcntl(s, F_GETFD),
	       (fcntl(s, F_GETFL) & O_NONBLOCK) != 0);
	len = sizeof a;
	SAY(getpeername(s, (struct sockaddr *)&a, &len));
	printf("its name: %d\n", ntohs(a.sin_port) == own);
	SAY(write(c, "text", 4));
	struct pollfd p = {.fd = s, .events = POLLIN};
	SAY(poll(&p, 1, 10000));
	SAY(read(s, text, sizeof text));
	puts(text);
	SAY(read(s, text, sizeof text));
	SAY(setsockopt(s, IPPROTO_TCP, TCP_KEEPCNT, &value, sizeof value));
	value = 0;
	len = sizeof value;
	SAY(getsockopt(s, IPPROTO_TCP, TCP_KEEPCNT, &value, &len));
	printf("value %d\n", value);
	a = at(port_of(l));
	SAY(connect(c, (struct sockaddr *)&a, sizeof a));
	SAY(shutdown(c, SHUT_WR));
	SAY(poll(&p, 1, 10000));
	SAY(read(s, text, sizeof text) == 0 ? 0 : -1);
	close(s);
	close(c);
	fcntl(l, F_SETFL, O_NONBLOCK);
	SAY(accept(l, NULL, NULL));
	int port = port_of(l), fd = socket(AF_INET, SOCK_STREAM, 0);
	a = at(port);
	SAY(bind(fd, (struct sockaddr *)&a, sizeof a));
	close(l);
	usleep(300 * 1000); /* the node is another process */
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	long r = connect(fd, (struct sockaddr *)&a, sizeof a);
	p = (struct pollfd){.fd = fd, .events = POLLOUT};
	printf("refused at once or later: %d\n", (r < 0 && errno == ECONNREFUSED) || (errno == EINPROGRESS && poll(&p, 1, 10000) == 1));
	if (errno == EINPROGRESS) {
		len = sizeof value;
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len);
		errno = value;
	}
	said("and the error", errno == 0 ? 0 : -1);
	close(fd);
}

static void families(void)
{
	int pair[2], value = 0, n = socket(AF_NETLINK, SOCK_RAW, 0), l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
	socklen_t len = sizeof value;
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	socklen_t size = (socklen_t)(sizeof(sa_family_t) + 1 + (size_t)snprintf(un.sun_path + 1, 64, "millrace-notify-%d", getpid()));
	SAY(getsockopt(n, SOL_SOCKET, SO_TYPE, &value, &len));
	printf("type %d\n", value);
	SAY(bind(l, (struct sockaddr *)&un, size));
	SAY(listen(l, 1));
	SAY(connect(c, (struct sockaddr *)&un, size));
	SAY(accept(l, NULL, NULL));
	SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	SAY(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &(int){100000}, 4));
	SAY(getsockname(pair[0], (struct sockaddr *)&un, &(socklen_t){sizeof un}));
}

static volatile sig_atomic_t signals;

static void count(int number)
{
	(void)number;
	signals++;
}

static void handle(int number, int flags)
{
	struct sigaction action = {.sa_handler = count, .sa_flags = flags};
	sigaction(number, &action, NULL);
}

/* after runs f in a child, some time later. */
static pid_t after(int milliseconds, void (*f)(int), int argument)
{
	pid_t child = fork();
	if (child != 0)
		return child;
	usleep((useconds_t)milliseconds * 1000);
	f(argument);
	_exit(0);
}

static void alarm_parent(int unused)
{
	(void)unused;
	kill(getppid(), SIGUSR1);
}

static void connect_to(int port)
{
	int fd = client(port);
	char b;
	(void)!read(fd, &b, 1);
}

static void interrupt_then_connect(int port)
{
	alarm_parent(0);
	usleep(200 * 1000);
	connect_to(port);
}

static void waiting(void)
{
	int l = listener(), port = port_of(l);
	handle(SIGUSR1, 0);
	pid_t child = after(100, alarm_parent, 0);
	SAY(accept(l, NULL, NULL));
	printf("signals %d\n", (int)signals);
	waitpid(child, NULL, 0);
	handle(SIGUSR1, SA_RESTART);
	child = after(100, interrupt_then_connect, port);
	int s = (int)SAY(accept(l, NULL, NULL));
	printf("signals %d\n", (int)signals);
	close(s);
	waitpid(child, NULL, 0);
	child = after(100, connect_to, port);
	s = (int)SAY(accept(l, NULL, NULL));
	close(s);
	waitpid(child, NULL, 0);
	struct timeval limit = {.tv_usec = 100 * 1000};
	setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	SAY(accept(l, NULL, NULL));
	close(l);
}

/* A process that waits in accept and is killed frees its port at once. */
static void killed(void)
{
	int l = listener(), port = port_of(l), status = 0;
	struct sockaddr_in a = at(port);
	pid_t child = fork();
	if (child == 0) {
		accept(l, NULL, NULL);
		_exit(0);
	}
	close(l);
	usleep(100 * 1000);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	printf("killed by %d\n", WTERMSIG(status));
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	for (int i = 0; i < 500 && bind(fd, (struct sockaddr *)&a, sizeof a) != 0; i++)
		usleep(10 * 1000); /* the end of a process is not the return of waitpid */
	SAY(listen(fd, 1));
	printf("the same port %d\n", port_of(fd) == port);
	child = fork();
	if (child == 0) {
		accept(fd, NULL, NULL);
		_exit(0);
	}
	usleep(100 * 1000);
	kill(child, SIGTERM);
	waitpid(child, &status, 0);
	printf("killed by %d\n", WTERMSIG(status));
	kill(child = fork() ?: (accept(fd, NULL, NULL), getpid()), SIGSTOP);
	waitpid(child, &status, WUNTRACED);
	printf("stopped %d\n", WIFSTOPPED(status));
	kill(child, SIGCONT);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	close(fd);
}

static void datagrams(void)
{
	struct sockaddr_in a = at(9);
	char b[4];
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	SAY(getpeername(fd, (struct sockaddr *)&a, &len));
	a = at(9);
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	SAY(getpeername(fd, (struct sockaddr *)&a, &len));
	printf("port %d\n", ntohs(a.sin_port));
	SAY(listen(fd, 1));
	SAY(accept(fd, NULL, NULL));
	SAY(recv(fd, b, sizeof b, MSG_DONTWAIT));
	a.sin_family = AF_UNSPEC;
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	SAY(getpeername(fd, (struct sockaddr *)&a, &len));
	close(fd);
}

/* A server that forks for each connection: `n` of them, of which each gets the number of its server's child. */
static void fork_server(int n)
{
	int l = listener(), sum = 0, status;
	pid_t clients = fork();
	if (clients == 0) {
		for (int i = 0; i < n; i++) {
			char b[16] = "";
			int fd = client(port_of(l));
			if (write(fd, "x", 1) != 1 || read(fd, b, sizeof b) <= 0)
				_exit(1);
			sum += atoi(b);
			close(fd);
		}
		printf("sum %d\n", sum);
		fflush(stdout);
		_exit(0);
	}
	for (int i = 0; i < n; i++) {
		int fd = accept(l, NULL, NULL);
		if (fork() == 0) {
			char b;
			if (read(fd, &b, 1) == 1)
				dprintf(fd, "%d", i);
			_exit(0);
		}
		close(fd);
	}
	waitpid(clients, &status, 0);
	printf("clients ended with %d\n", WEXITSTATUS(status));
	while (wait(NULL) > 0) {
	}
}

static struct sockaddr_in shared;
static socklen_t shared_len;
static _Atomic int shared_fd, over;

static void *change(void *unused)
{
	(void)unused;
	for (unsigned i = 0; !over; i++) {
		shared.sin_family = i % 3 == 0 ? AF_INET6 : AF_INET;
		shared.sin_port = (in_port_t)i;
		shared.sin_addr.s_addr = i % 5 == 0 ? 0xffffffff : htonl(INADDR_LOOPBACK);
		shared_len = i % 7 == 0 ? (socklen_t)-1 : i % 29;
		if (i % 64 == 0)
			close(shared_fd);
		if (i % 64 == 1)
			dup2(STDERR_FILENO, shared_fd);
	}
	return NULL;
}

static void *call_all(void *seconds)
{
	time_t end = time(NULL) + (long)seconds;
	for (unsigned i = 0; time(NULL) < end; i++) {
		int fd = socket(i % 2 ? AF_INET : AF_INET6, (i % 3 ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK, 0), value = (int)i;
		shared_fd = fd;
		bind(fd, (struct sockaddr *)&shared, shared_len);
		setsockopt(fd, (int)i % 50, (int)i % 70, &shared, shared_len);
		getsockopt(fd, (int)i % 50, (int)i % 70, &shared, &shared_len);
		connect(fd, (struct sockaddr *)&shared, shared_len);
		listen(fd, value);
		getsockname(fd, (struct sockaddr *)&shared, &shared_len);
		getpeername(fd, (struct sockaddr *)&shared, &shared_len);
		accept(fd, (struct sockaddr *)&shared, &shared_len);
		close(fd);
	}
	return NULL;
}

/* Threads that make calls with memory and descriptors that others change meanwhile. */
static void hostile(long seconds)
{
	pthread_t changer, callers[16];
	dup2(open("/dev/null", O_RDWR), STDERR_FILENO);
	pthread_create(&changer, NULL, change, NULL);
	for (int i = 0; i < 16; i++)
		pthread_create(&callers[i], NULL, call_all, (void *)seconds);
	for (int i = 0; i < 16; i++)
		pthread_join(callers[i], NULL);
	over = 1;
	pthread_join(changer, NULL);
	puts("it lives");
}

/* A peer at address and port that answers, and a neighbor that does not. */
static void network(const char *address, int port, const char *nobody)
{
	struct sockaddr_in a = at(port), none = at(port);
	socklen_t len = sizeof a;
	inet_pton(AF_INET, address, &a.sin_addr);
	inet_pton(AF_INET, nobody, &none.sin_addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	SAY(getpeername(fd, (struct sockaddr *)&a, &len));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	SAY(connect(fd, (struct sockaddr *)&none, sizeof none));
	SAY(getpeername(fd, (struct sockaddr *)&a, &len));
	SAY(connect(fd, (struct sockaddr *)&none, sizeof none));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	struct timeval limit = {.tv_usec = 100 * 1000};
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	SAY(connect(fd, (struct sockaddr *)&none, sizeof none));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	handle(SIGUSR1, 0);
	after(100, alarm_parent, 0);
	SAY(connect(fd, (struct sockaddr *)&none, sizeof none));
	close(fd);
}

/* sockets opens n sockets, each of which has to be one. */
static void sockets(int n)
{
	for (int i = 0; i < n; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (fd <= STDERR_FILENO) {
			printf("socket %d: %d\n", i, fd);
			exit(1);
		}
		close(fd);
	}
	printf("%d sockets\n", n);
}

/* cost prints nanoseconds for each of some calls: those of the best of several batches of n. */
static void cost(int n)
{
	struct timespec from, to;
	double best;
	int fd = socket(AF_INET, SOCK_STREAM, 0), value = 1;
	struct sockaddr_in a;
	socklen_t len = sizeof a;
	int l = listener(), own = client(port_of(l)), pair[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
#define BATCHES 20
#define COST(call)                                                                                                        \
	best = 1e12;                                                                                                      \
	for (int batch = 0; batch < BATCHES; batch++) {                                                                  \
		clock_gettime(CLOCK_MONOTONIC, &from);                                                                   \
		for (int i = 0; i < n; i++)                                                                               \
			call;                                                                                             \
		clock_gettime(CLOCK_MONOTONIC, &to);                                                                     \
		double each = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / n;       \
		best = each < best ? each : best;                                                                         \
	}                                                                                                                 \
	printf("%-90s %8.0f ns\n", #call, best)
	COST(close(socket(AF_INET, SOCK_STREAM, 0)));
	COST((len = sizeof a, getsockname(own, (struct sockaddr *)&a, &len)));
	COST(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
	COST((len = sizeof value, getsockopt(own, SOL_SOCKET, SO_ERROR, &value, &len)));
	COST((len = sizeof a, getsockname(pair[0], (struct sockaddr *)&a, &len)));
	COST((value = client(port_of(l)), close(accept(l, NULL, NULL)), close(value)));
	COST(getppid());
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int n = argc > 2 ? atoi(argv[2]) : 1;
	alarm(60);
	if (strcmp(what, "forks") == 0) {
		fork_server(n);
	} else if (strcmp(what, "hostile") == 0) {
		hostile(n);
	} else if (strcmp(what, "network") == 0 && argc == 5) {
		network(argv[2], atoi(argv[3]), argv[4]);
	} else if (strcmp(what, "sockets") == 0) {
		sockets(n);
	} else if (strcmp(what, "cost") == 0) {
		cost(n);
	} else {
		descriptors();
		wrong_memory();
		streams();
		families();
		datagrams();
		waiting();
		killed();
	}
	return 0;
}
