/* boxes.c - programs that give up rights after they have started, and calls before any constructor. */

#include "life.h"

#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

/* bound tries a port, and returns errno. */
static int bound(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	int e = bind(fd, (struct sockaddr *)&a, sizeof a) == 0 ? 0 : errno;
	close(fd);
	return e;
}

/* Another user, without groups. */
static void other_user(char **args)
{
	bool before = strcmp(args[0], "opened") == 0;
	int fd = before ? connected(7) : -1;
	if (before)
		CHECK(bound(1021) == 0);
	CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
	if (before)
		echo(fd, "as another user");
	fd = connected(7);
	echo(fd, "opened as another user");
	CHECK(bound(1022) == EACCES && bound(1024) == 0);
	pid_t p = fork();
	if (p == 0) {
		echo(connected(7), "in a child");
		_exit(0);
	}
	reap(p);
}

/* Another root directory, in which the node's path is not. */
static void other_root(char **args)
{
	int fd = -1;
	if (strcmp(args[1], "opened") == 0)
		fd = connected(7);
	CHECK(chroot(args[0]) == 0 && chdir("/") == 0);
	if (fd >= 0)
		echo(fd, "opened before");
	echo(connected(7), "in another root");
	pid_t p = fork();
	if (p == 0) {
		CHECK(setgid(65534) == 0 && setuid(65534) == 0);
		echo(connected(7), "in a child");
		_exit(0);
	}
	reap(p);
}

static void *in_thread(void *arg)
{
	(void)arg;
	echo(connected(7), "in a thread");
	return NULL;
}

/* in_children is for what is forked in another root and another network: calls of its own, and nothing of the program is changed. */
static void in_children(int fd)
{
	pid_t p = fork();
	if (p != 0) {
		reap(p);
		return;
	}
	char before[64], after[64];
	int idle = 78, value = 0;
	socklen_t len = sizeof value;
	pthread_t t;
	CHECK(getcwd(before, sizeof before) != NULL);
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) == 0);
	CHECK(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, &len) == 0 && value == idle);
	echo(connected(7), "in a child of that");
	CHECK(pthread_create(&t, NULL, in_thread, NULL) == 0 && pthread_join(t, NULL) == 0);
	CHECK(getcwd(after, sizeof after) != NULL && strcmp(before, after) == 0);
	CHECK(waitpid(-1, NULL, __WALL) < 0 && errno == ECHILD);
	if (fork() == 0) {
		echo(connected(7), "in a child of the child");
		_exit(0);
	}
	int status = -1;
	CHECK(wait(&status) > 0 && status == 0);
	_exit(0);
}

/*
 * A child with another root directory and in another network namespace, as a session of vsftpd: neither the node's path nor its abstract
 * name is there. By syscall: so the calls of a program are that uses numbers.
 */
static void other_network(char **args)
{
	bool numbers = strcmp(args[1], "syscall") == 0;
	int fd = connected(7), one = 1, idle = 77, value = 0;
	socklen_t len = sizeof value;
	pid_t p = fork();
	if (p == 0) {
		CHECK((numbers ? (int)syscall(SYS_unshare, CLONE_NEWNET) : unshare(CLONE_NEWNET)) == 0);
		CHECK((numbers ? (int)syscall(SYS_chroot, args[0]) : chroot(args[0])) == 0 && chdir("/") == 0);
		CHECK(setgid(65534) == 0 && setuid(65534) == 0);
		CHECK(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) == 0 && setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) == 0);
		CHECK(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, &len) == 0 && value == idle);
		echo(fd, "opened before");
		echo(connected(7), "in another network");
		in_children(fd);
		_exit(0);
	}
	reap(p);
}

/* install permits the calls of a list, which ends with -1. Any other ends the process. It does so by seccomp(2) or prctl(2). */
static void install(const int *calls, bool by_seccomp)
{
	struct sock_filter f[128];
	unsigned short n = 0;
	f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (; *calls >= 0; calls++) {
		f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)*calls, 0, 1);
		f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	struct sock_fprog p = {n, f};
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (by_seccomp)
		CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p) == 0);
	else
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) == 0);
}

/* accepts_waiting accepts a connection whose listener and client, with its byte, were there before the filter of the caller. */
static void accepts_waiting(int l)
{
	char b;
	int got = accept(l, NULL, NULL);
	CHECK(got >= 0 && recv(got, &b, 1, 0) == 1 && b == 'x' && send(got, "y", 1, 0) == 1 && recv(got, &b, 1, 0) == 0);
}

/* accepts_ended does so for a client that has ended: without its help. */
static void accepts_ended(int l)
{
	char b;
	int low = dup(l);
	close(low);
	int got = accept(l, NULL, NULL);
	CHECK(got >= 0 && fcntl(got, F_GETFD) == 0 && recv(got, &b, 1, 0) == 1 && b == 'x' && recv(got, &b, 1, 0) == 0);
	close(got);
	CHECK(dup(l) == low); /* nothing else is open */
	close(low);
}

/* waiting makes the listener, and a child that connects to it and has no filter. It may end once it has sent its byte. */
static int waiting(bool ends)
{
	struct sockaddr_in any = address("0.0.0.0", 0), own;
	socklen_t len = sizeof own;
	int l = tcp(), ready[2];
	char b;
	CHECK(bind(l, (struct sockaddr *)&any, sizeof any) == 0 && listen(l, 5) == 0 && pipe(ready) == 0);
	CHECK(getsockname(l, (struct sockaddr *)&own, &len) == 0);
	if (fork() == 0) {
		int fd = tcp();
		CHECK(connect(fd, (struct sockaddr *)&own, sizeof own) == 0 && send(fd, "x", 1, 0) == 1);
		CHECK(ends || (write(ready[1], "r", 1) == 1 && recv(fd, &b, 1, 0) == 1 && b == 'y'));
		_exit(0);
	}
	close(ready[1]);
	CHECK(read(ready[0], &b, 1) == !ends); /* its end has closed the socket, too */
	return l;
}

/* What a network server permits itself: the calls that systemd has as @basic-io and @network-io, memory, time and poll. */
static void sandbox(char **args)
{
	(void)args;
	static const int calls[] = {
		SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_close, SYS_dup, SYS_lseek, SYS_fcntl,
		SYS_accept, SYS_accept4, SYS_bind, SYS_connect, SYS_getpeername, SYS_getsockname, SYS_getsockopt, SYS_listen,
		SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_setsockopt, SYS_shutdown,
		SYS_socket, SYS_socketpair, SYS_ppoll, SYS_epoll_ctl, SYS_epoll_pwait,
#ifdef SYS_poll
		SYS_poll, SYS_epoll_wait,
#endif
		SYS_brk, SYS_mmap, SYS_munmap, SYS_futex, SYS_clock_gettime, SYS_nanosleep, SYS_getpid, SYS_geteuid, SYS_getuid,
		SYS_newfstatat, SYS_fstat, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_getrandom, SYS_exit_group, SYS_prlimit64, -1,
	};
	int talks = waiting(false), ends = waiting(true);
	install(calls, false);
	accepts_waiting(talks);
	accepts_ended(ends);
	int one = 1, l = tcp(), fd = tcp(), u = udp();
	struct sockaddr_in any = address("0.0.0.0", 0), to = address(peer, 7), own;
	socklen_t len = sizeof own;
	char b[16];
	CHECK(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
	CHECK(bind(l, (struct sockaddr *)&any, sizeof any) == 0 && listen(l, 5) == 0);
	CHECK(getsockname(l, (struct sockaddr *)&own, &len) == 0);
	CHECK(connect(fd, (struct sockaddr *)&own, sizeof own) == 0);
	int got = accept(l, NULL, NULL);
	CHECK(got >= 0 && send(fd, "x", 1, 0) == 1 && recv(got, b, sizeof b, 0) == 1);
	CHECK(sendto(u, "x", 1, 0, (struct sockaddr *)&to, sizeof to) == 1 && recv(u, b, sizeof b, 0) == 1);
	CHECK(getpeername(fd, (struct sockaddr *)&own, &len) == 0 && so_error(fd) == 0);
	echo(connected(7), "in a sandbox");
}

/* What a process permits itself that only moves data: the connection was opened before. */
static void data_sandbox(char **args)
{
	(void)args;
	static const int calls[] = {SYS_read, SYS_write, SYS_exit_group, SYS_newfstatat, SYS_fstat, SYS_brk, SYS_getrandom, -1};
	for (int by_seccomp = 0; by_seccomp < 2; by_seccomp++) {
		pid_t child = fork();
		if (child != 0) {
			reap(child);
			continue;
		}
		int fd = connected(7);
		echo(fd, "before");
		install(calls, by_seccomp != 0);
		echo(fd, "data alone");
		_exit(0);
	}
}

/* RestrictAddressFamilies=AF_INET AF_INET6: sockets of the stack are AF_UNIX ones. */
static void no_unix(char **args)
{
	(void)args;
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {sizeof f / sizeof *f, f};
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) == 0);
	FAILS(socket(AF_INET, SOCK_STREAM, 0), EAFNOSUPPORT);
	FAILS(socket(AF_INET, SOCK_DGRAM, 0), EAFNOSUPPORT);
}

static int early = -1;

/* The loader calls it before the constructors of all libraries, that of libc included. */
static void before_constructors(int n, char **args, char **env)
{
	if (n > 1 && strcmp(args[1], "preinit") == 0)
		early = socket(AF_INET, SOCK_STREAM, 0);
	(void)env;
}

__attribute__((section(".preinit_array"), used)) static void (*const before)(int, char **, char **) = before_constructors;

/* A socket that was opened before the library's constructor is the stack's. */
static void preinit(char **args)
{
	(void)args;
	struct sockaddr_in to = address(peer, 7);
	CHECK(early >= 0 && connect(early, (struct sockaddr *)&to, sizeof to) == 0);
	echo(early, "hello");
	echo(connected(7), "hello");
}

/* Holds N connections until it is killed. */
static void hold(char **args)
{
	for (int i = atoi(args[0]); i > 0; i--)
		echo(connected(7), "hello");
	puts("holds");
	fflush(stdout);
	for (;;)
		pause();
}

/* One more socket fails with an errno. */
static void one_more(char **args)
{
	struct sockaddr_in to = address(peer, 7);
	FAILS(connect(tcp(), (struct sockaddr *)&to, sizeof to), atoi(args[0]));
	FAILS(socket(AF_INET, SOCK_DGRAM, 0), atoi(args[0]));
}

static void low_port(char **args)
{
	struct sockaddr_in any = address("0.0.0.0", 80);
	int fd = tcp();
	FAILS(bind(fd, (struct sockaddr *)&any, sizeof any), atoi(args[0]));
}

/* Listens where a node would, and answers nothing. */
static void fake_node(char **args)
{
	struct sockaddr_un own = {.sun_family = AF_UNIX};
	CHECK(strlen(args[0]) < sizeof own.sun_path);
	strcpy(own.sun_path, args[0]);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	CHECK(bind(fd, (struct sockaddr *)&own, sizeof own) == 0 && chmod(args[0], 0777) == 0 && listen(fd, 5) == 0);
	puts("listens");
	fflush(stdout);
	for (;;)
		pause();
}

/* Opens sockets in all states, and writes and reads as they come, until it is killed. */
static void flood(char **args)
{
	static char b[20000];
	unsigned seed = (unsigned)atoi(args[0]) * 77 + (unsigned)getpid();
	struct sockaddr_in ports[] = {address(peer, 7), address(peer, 9), address(peer, 19), address(peer, 1), address("198.18.0.77", 1)};
	int fds[100];
	memset(fds, -1, sizeof fds);
	for (long n = 0;; n++) {
		int i = rand_r(&seed) % 100;
		if (n == 100) {
			puts("floods");
			fflush(stdout);
		}
		if (fds[i] < 0) {
			fds[i] = socket(AF_INET, (rand_r(&seed) % 4 ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK, 0);
			CHECK(fds[i] >= 0);
			struct sockaddr_in *to = &ports[rand_r(&seed) % 5], any = address("0.0.0.0", 0);
			if (rand_r(&seed) % 5 != 0)
				connect(fds[i], (struct sockaddr *)to, sizeof *to);
			else if (bind(fds[i], (struct sockaddr *)&any, sizeof any) == 0)
				listen(fds[i], 3);
			continue;
		}
		switch (rand_r(&seed) % 5) {
		case 0:
			close(fds[i]);
			fds[i] = -1;
			break;
		case 1:
			recv(fds[i], b, sizeof b, 0);
			break;
		case 2:
			shutdown(fds[i], rand_r(&seed) % 3);
			break;
		default:
			send(fds[i], b, (size_t)(rand_r(&seed) % (int)sizeof b), MSG_NOSIGNAL);
		}
	}
}

const struct part boxes[] = {
	{"hold", hold}, {"one-more", one_more}, {"low-port", low_port}, {"fake-node", fake_node}, {"flood", flood},
	{"other-user", other_user},     {"other-root", other_root}, {"other-network", other_network}, {"sandbox", sandbox},
	{"data-sandbox", data_sandbox}, {"no-unix", no_unix},       {"preinit", preinit},
	{NULL, NULL},
};
