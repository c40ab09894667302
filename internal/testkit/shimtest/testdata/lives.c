/* lives.c - sockets that outlive a call, a thread, a process or its program. */

#include "life.h"

#include <netdb.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/time.h>

extern char **environ;

static int watch(int epoll, int fd, unsigned events)
{
	struct epoll_event e = {.events = events, .data.fd = fd};
	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

/* An epoll instance in another one, level and edge triggered. */
static void nested_epoll(char **args)
{
	(void)args;
	char b[16];
	struct epoll_event e;
	int fd = connected(7), inner = epoll_create1(0), outer = epoll_create1(0), last = epoll_create1(0);
	CHECK(watch(inner, fd, EPOLLIN | EPOLLRDHUP) == 0 && watch(outer, inner, EPOLLIN) == 0 && watch(last, outer, EPOLLIN | EPOLLET) == 0);
	CHECK(epoll_wait(last, &e, 1, 100) == 0);
	for (int i = 0; i < 3; i++) {
		CHECK(send(fd, "hello", 5, 0) == 5);
		CHECK(epoll_wait(last, &e, 1, 20000) == 1 && e.data.fd == outer);
		CHECK(epoll_wait(outer, &e, 1, 0) == 1 && e.data.fd == inner);
		CHECK(epoll_wait(inner, &e, 1, 0) == 1 && e.data.fd == fd && e.events == EPOLLIN);
		CHECK(recv(fd, b, sizeof b, 0) == 5);
		CHECK(epoll_wait(inner, &e, 1, 0) == 0);
	}
}

static int listening(int port)
{
	struct sockaddr_in any = address("0.0.0.0", port);
	int fd = tcp();
	CHECK(bind(fd, (struct sockaddr *)&any, sizeof any) == 0 && listen(fd, 50) == 0);
	return fd;
}

static void serve_one(int listener)
{
	char b[4096];
	ssize_t n;
	int fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0);
	while ((n = recv(fd, b, sizeof b, 0)) > 0)
		CHECK(send(fd, b, (size_t)n, 0) == n);
	close(fd);
}

/* Children accept from the listener that their parent has opened, and closed. Each ends after some connections. */
static void fork_after_listen(char **args)
{
	pid_t children[3];
	int fd = listening(atoi(args[0])), each = atoi(args[1]);
	for (int i = 0; i < 3; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			for (int n = 0; n < each; n++)
				serve_one(fd);
			_exit(0);
		}
	}
	close(fd);
	puts("listening");
	fflush(stdout);
	for (int i = 0; i < 3; i++)
		reap(children[i]);
}

static void same_peer(int fd)
{
	struct sockaddr_in a;
	socklen_t len = sizeof a;
	CHECK(getpeername(fd, (struct sockaddr *)&a, &len) == 0 && a.sin_family == AF_INET && a.sin_addr.s_addr == address(peer, 7).sin_addr.s_addr);
	int value = 0;
	len = sizeof value;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &len) == 0 && value == AF_INET);
	len = sizeof value;
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, len) == 0 && getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &len) == 0 && value == 1);
}

static void after_exec(char **args)
{
	int fd = atoi(args[0]), u = atoi(args[1]), l = atoi(args[2]);
	char b[16];
	same_peer(fd);
	echo(fd, "behind exec");
	CHECK(send(u, "x", 1, 0) == 1 && recv(u, b, sizeof b, 0) == 1);
	struct sockaddr_in a;
	socklen_t len = sizeof a;
	CHECK(getsockname(l, (struct sockaddr *)&a, &len) == 0);
	int own = tcp();
	CHECK(connect(own, (struct sockaddr *)&a, sizeof a) == 0);
	int got = accept(l, NULL, NULL);
	CHECK(got >= 0 && send(own, "y", 1, 0) == 1 && recv(got, b, sizeof b, 0) == 1);
}

/* A connection, a UDP socket and a listener are there in the next program. */
static void exec_with_sockets(char **args)
{
	(void)args;
	struct sockaddr_in to = address(peer, 7);
	char number[3][16];
	int fd = connected(7), u = udp(), l = listening(0);
	CHECK(connect(u, (struct sockaddr *)&to, sizeof to) == 0);
	echo(fd, "before exec");
	snprintf(number[0], 16, "%d", fd);
	snprintf(number[1], 16, "%d", u);
	snprintf(number[2], 16, "%d", l);
	execl("/proc/self/exe", "life", "after-exec", number[0], number[1], number[2], (char *)NULL);
	CHECK(false);
}

/* dup2(2) over a connection closes it, and a copy goes on. The argument is a port that reports the end of connections. */
static void dup_over(char **args)
{
	(void)args;
	int fd = connected(7), other = connected(7);
	CHECK(dup2(fd, 100) == 100);
	close(fd);
	same_peer(100);
	echo(100, "on another number");
	int file = open("/dev/null", O_RDWR);
	CHECK(dup2(file, other) == other);
	CHECK(write(other, "to the file", 11) == 11);
	int again = connected(7);
	CHECK(dup2(again, 100) == 100); /* a connection over a connection */
	close(again);
	same_peer(100);
	echo(100, "and again");
}

static void nothing(int signal) { (void)signal; }

/* again makes a call until it is not interrupted. */
#define AGAIN(call)                                     \
	({                                              \
		long result;                            \
		do                                      \
			result = (call);                \
		while (result < 0 && errno == EINTR);   \
		result;                                 \
	})

static void connect_interrupted(int fd, const struct sockaddr_in *to)
{
	if (connect(fd, (const struct sockaddr *)to, sizeof *to) == 0)
		return;
	CHECK(errno == EINTR);
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	CHECK(AGAIN(poll(&p, 1, 20000)) == 1);
	CHECK(so_error(fd) == 0);
}

/* Calls that wait may be interrupted, all others never show it, and none loses anything. */
static void eintr(char **args)
{
	(void)args;
	struct sigaction act = {.sa_handler = nothing};
	struct itimerval often = {{0, 300}, {0, 300}};
	struct sockaddr_in to = address(peer, 7), own;
	socklen_t len = sizeof own;
	int l = listening(0);
	CHECK(getsockname(l, (struct sockaddr *)&own, &len) == 0);
	own.sin_addr = address("198.18.0.1", 0).sin_addr;
	CHECK(sigaction(SIGALRM, &act, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (int i = 0; i < 40; i++) {
		char b[70000] = {0};
		int fd = tcp(), u = udp(), in = tcp();
		connect_interrupted(fd, &to);
		same_peer(fd);
		for (size_t sent = 0; sent < sizeof b;) {
			long n = AGAIN(send(fd, b + sent, sizeof b - sent, 0));
			CHECK(n > 0);
			sent += (size_t)n;
		}
		for (size_t got = 0; got < sizeof b;) {
			long n = AGAIN(recv(fd, b, sizeof b - got, 0));
			CHECK(n > 0);
			got += (size_t)n;
		}
		connect_interrupted(in, &own);
		int accepted = (int)AGAIN(accept4(l, NULL, NULL, SOCK_CLOEXEC));
		CHECK(accepted >= 0 && AGAIN(send(in, "z", 1, 0)) == 1 && AGAIN(recv(accepted, b, 1, 0)) == 1);
		CHECK(AGAIN(sendto(u, "u", 1, 0, (struct sockaddr *)&to, sizeof to)) == 1 && AGAIN(recv(u, b, 10, 0)) == 1);
		struct addrinfo *list;
		CHECK(getaddrinfo("127.0.0.1", "80", NULL, &list) == 0);
		freeaddrinfo(list);
		close(fd);
		close(u);
		close(in);
		close(accepted);
	}
}

static void one_echo(char **args)
{
	(void)args;
	int fd = connected(7);
	echo(fd, "from a child");
	close(fd);
}

static void *echoes(void *rounds)
{
	for (int i = 0; i < *(int *)rounds; i++) {
		int fd = connected(7);
		echo(fd, "from a thread");
		close(fd);
	}
	return NULL;
}

static pid_t child(void (*f)(char **))
{
	pid_t p = fork();
	if (p == 0) {
		f(NULL);
		_exit(0);
	}
	return p;
}

static void exec_echo(char **args)
{
	(void)args;
	execl("/proc/self/exe", "life", "one-echo", (char *)NULL);
	_exit(9);
}

/* Threads use sockets while the process forks, and some children become other programs. */
static void threads_fork_exec(char **args)
{
	int rounds = atoi(args[0]);
	pthread_t threads[6];
	for (int i = 0; i < 6; i++)
		CHECK(pthread_create(&threads[i], NULL, echoes, &rounds) == 0);
	for (int i = 0; i < 10; i++) {
		pid_t a = child(one_echo), b = child(exec_echo);
		reap(a);
		reap(b);
	}
	for (int i = 0; i < 6; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

/* vfork(2) and posix_spawn(3): the child has the parent's memory until exec. */
static void vfork_spawn(char **args)
{
	(void)args;
	int fd = connected(7);
	for (int i = 0; i < 3; i++) {
		pid_t p = vfork();
		if (p == 0) {
			execl("/proc/self/exe", "life", "one-echo", (char *)NULL);
			_exit(9);
		}
		echo(fd, "beside a child");
		reap(p);
		char *with[] = {"life", "one-echo", NULL};
		CHECK(posix_spawn(&p, "/proc/self/exe", NULL, NULL, with, environ) == 0);
		echo(fd, "beside another");
		reap(p);
	}
	one_echo(NULL);
}

static void pass(int through, int fd)
{
	struct iovec part = {"f", 1};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {0};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	CHECK(sendmsg(through, &m, 0) == 1);
}

static int take(int through)
{
	char b;
	int fd;
	struct iovec part = {&b, 1};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fd)];
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	CHECK(recvmsg(through, &m, 0) == 1 && CMSG_FIRSTHDR(&m) != NULL);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

static void taker(char **args)
{
	int fd = take(atoi(args[0]));
	echo(fd, "from the other process");
	if (getenv("LD_PRELOAD") != NULL)
		same_peer(fd);
}

/* A socket goes to another program, which has the library or not: data pass in both, addresses in the first alone. */
static void pass_socket(char **args)
{
	(void)args;
	char number[16];
	for (int library = 1; library >= 0; library--) {
		int ends[2], fd = connected(7);
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
		snprintf(number, sizeof number, "%d", ends[1]);
		pid_t p = fork();
		if (p == 0) {
			close(ends[0]);
			if (!library)
				unsetenv("LD_PRELOAD");
			execl("/proc/self/exe", "life", "taker", number, (char *)NULL);
			_exit(9);
		}
		pass(ends[0], fd);
		close(fd);
		reap(p);
	}
}

/* UDP sockets of many ports, so of all loops, unconnected and connected, each with datagrams of several sizes. */
static void udp_peers(char **args)
{
	(void)args;
	struct sockaddr_in to = address(peer, 7), from;
	static char out[1500], in[1500];
	for (int i = 0; i < 24; i++) {
		socklen_t len = sizeof from;
		int fd = udp(), n = 1 + i * 60;
		struct timeval limit = {.tv_sec = 20};
		CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
		memset(out, i, sizeof out);
		if (i % 2)
			CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && send(fd, out, (size_t)n, 0) == n);
		else
			CHECK(sendto(fd, out, (size_t)n, 0, (struct sockaddr *)&to, sizeof to) == n);
		ssize_t got = recvfrom(fd, in, sizeof in, 0, (struct sockaddr *)&from, &len);
		CHECK(got == n && memcmp(in, out, (size_t)n) == 0);
		CHECK(from.sin_port == to.sin_port && from.sin_addr.s_addr == to.sin_addr.s_addr);
		close(fd);
	}
}

/* Connections from many ports to a listener of the same program, and SO_REUSEPORT listeners that share a port. */
static void self_connect(char **args)
{
	(void)args;
	int one = 1, listeners[3], clients[30];
	struct sockaddr_in own = address("127.0.0.1", 0);
	socklen_t len = sizeof own;
	for (int i = 0; i < 3; i++) {
		listeners[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		CHECK(setsockopt(listeners[i], SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) == 0);
		CHECK(bind(listeners[i], (struct sockaddr *)&own, sizeof own) == 0 && listen(listeners[i], 50) == 0);
		CHECK(getsockname(listeners[i], (struct sockaddr *)&own, &len) == 0);
	}
	for (int i = 0; i < 30; i++) {
		clients[i] = tcp();
		CHECK(connect(clients[i], (struct sockaddr *)&own, sizeof own) == 0 && send(clients[i], "x", 1, 0) == 1);
	}
	for (int taken = 0; taken < 30;) {
		struct pollfd p[3] = {{listeners[0], POLLIN, 0}, {listeners[1], POLLIN, 0}, {listeners[2], POLLIN, 0}};
		CHECK(poll(p, 3, 20000) > 0);
		for (int i = 0; i < 3; i++) {
			int fd = p[i].revents != 0 ? accept(listeners[i], NULL, NULL) : -1;
			char b;
			if (fd < 0)
				continue;
			CHECK(recv(fd, &b, 1, 0) == 1 && send(fd, "y", 1, 0) == 1);
			close(fd);
			taken++;
		}
	}
	for (int i = 0; i < 30; i++) {
		char b[4];
		CHECK(recv(clients[i], b, sizeof b, 0) == 1 && recv(clients[i], b, sizeof b, 0) == 0);
		close(clients[i]);
	}
}

const struct part lives[] = {
	{"udp-peers", udp_peers},
	{"self-connect", self_connect},
	{"nested-epoll", nested_epoll},
	{"fork-after-listen", fork_after_listen},
	{"exec", exec_with_sockets},
	{"after-exec", after_exec},
	{"dup2", dup_over},
	{"eintr", eintr},
	{"one-echo", one_echo},
	{"threads-fork-exec", threads_fork_exec},
	{"vfork-spawn", vfork_spawn},
	{"pass", pass_socket},
	{"taker", taker},
	{NULL, NULL},
};
