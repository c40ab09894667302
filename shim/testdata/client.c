/*
 * client.c - programs of TestPrograms: each is what its first argument names, and connects to the address and port behind,
 * where a server echoes. Exit code 0 is that all was as over the kernel's TCP.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;

static void check(int ok, const char *what, int line)
{
	if (ok)
		return;
	fprintf(stderr, "line %d: %s: %s\n", line, what, strerror(errno));
	_exit(1);
}
#define CHECK(x) check((x) != 0, #x, __LINE__)

static int dial(char **arg)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arg[1]))};
	CHECK(inet_pton(AF_INET, arg[0], &to.sin_addr) == 1);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	return fd;
}

static void nonblocking(int fd)
{
	CHECK(fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) == 0);
}

/* The byte of a stream at an offset. */
static uint8_t byte_at(uint64_t at)
{
	return (uint8_t)((at * 0x9e3779b97f4a7c15u) >> 56);
}

static void make(uint8_t *b, uint64_t at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		b[i] = byte_at(at + i);
}

static void verify(const uint8_t *b, uint64_t at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (b[i] != byte_at(at + i)) {
			fprintf(stderr, "byte %llu is wrong\n", (unsigned long long)(at + i));
			_exit(1);
		}
}

#define BIGGEST 100000

/* put writes the bytes from at on, by another call each time. It returns how many the call has taken. */
static ssize_t put(int fd, uint64_t at, size_t n, unsigned *seed)
{
	static __thread uint8_t b[BIGGEST];
	make(b, at, n);
	size_t half = n / 3;
	struct iovec parts[2] = {{b, half}, {b + half, n - half}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
	switch (rand_r(seed) % 4) {
	case 0:
		return write(fd, b, n);
	case 1:
		return writev(fd, parts, 2);
	case 2:
		return send(fd, b, n, MSG_NOSIGNAL);
	}
	return sendmsg(fd, &m, 0);
}

/* get is put for the other direction. */
static ssize_t get(int fd, uint64_t at, size_t n, unsigned *seed)
{
	static __thread uint8_t b[BIGGEST];
	size_t half = n / 3;
	struct iovec parts[2] = {{b, half}, {b + half, n - half}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
	ssize_t got = 0;
	switch (rand_r(seed) % 5) {
	case 0:
		got = read(fd, b, n);
		break;
	case 1:
		got = readv(fd, parts, 2);
		break;
	case 2:
		got = recv(fd, b, n, MSG_PEEK);
		if (got > 0) {
			verify(b, at, (size_t)got);
			got = recv(fd, b, (size_t)got, MSG_WAITALL);
		}
		break;
	case 3:
		got = recvfrom(fd, b, n, 0, NULL, NULL);
		break;
	default:
		got = recvmsg(fd, &m, 0);
	}
	if (got > 0)
		verify(b, at, (size_t)got);
	return got;
}

struct flow {
	int fd;
	uint64_t from, to;
};

static void *write_all(void *arg)
{
	struct flow *f = arg;
	unsigned seed = 1;
	while (f->from < f->to) {
		size_t n = (size_t)(rand_r(&seed) % 3 == 0 ? rand_r(&seed) % BIGGEST : rand_r(&seed) % 300) + 1;
		if (n > f->to - f->from)
			n = (size_t)(f->to - f->from);
		ssize_t put_bytes = put(f->fd, f->from, n, &seed);
		CHECK(put_bytes == (ssize_t)n); /* a blocking socket */
		f->from += n;
	}
	return NULL;
}

static void read_all(int fd, uint64_t from, uint64_t to)
{
	unsigned seed = 2;
	while (from < to) {
		size_t n = (size_t)(rand_r(&seed) % 3 == 0 ? rand_r(&seed) % BIGGEST : rand_r(&seed) % 300) + 1;
		if (n > to - from)
			n = (size_t)(to - from);
		ssize_t got = get(fd, from, n, &seed);
		CHECK(got > 0);
		from += (uint64_t)got;
	}
}

static void end(int fd)
{
	char b;
	CHECK(shutdown(fd, SHUT_WR) == 0);
	CHECK(read(fd, &b, 1) == 0);
	CHECK(send(fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	CHECK(close(fd) == 0);
}

/* both sends and receives at the same time, and calls between once some bytes are on their way. */
static void both(int fd, uint64_t bytes, int (*between)(int fd))
{
	struct flow f = {fd, 0, bytes};
	pthread_t t;
	CHECK(pthread_create(&t, NULL, write_all, &f) == 0);
	if (between != NULL) {
		read_all(fd, 0, bytes / 2);
		int next = between(fd);
		read_all(next, bytes / 2, bytes);
		CHECK(pthread_join(t, NULL) == 0);
		end(next);
		return;
	}
	read_all(fd, 0, bytes);
	CHECK(pthread_join(t, NULL) == 0);
	end(fd);
}

/* echo sends messages and reads them again. */
static void echo(char **arg)
{
	char out[64], in[64];
	int fd = dial(arg);
	for (int i = 0; i < 2000; i++) {
		memset(out, i, sizeof out);
		CHECK(write(fd, out, sizeof out) == sizeof out);
		for (size_t n = 0; n < sizeof in;) {
			ssize_t got = read(fd, in + n, sizeof in - n);
			CHECK(got > 0);
			n += (size_t)got;
		}
		CHECK(memcmp(in, out, sizeof in) == 0);
	}
	end(fd);
}

static void transfer(char **arg)
{
	both(dial(arg), (uint64_t)atoll(arg[2]), NULL);
}

static int by_dup(int fd)
{
	int next = dup(fd);
	CHECK(next >= 0);
	return next;
}

static int by_dup2(int fd)
{
	CHECK(dup2(fd, 100) == 100);
	return 100;
}

static int by_fdopen(int fd)
{
	CHECK(fdopen(fd, "r+") != NULL);
	return fd;
}

static int by_splice(int fd)
{
	int p[2];
	CHECK(pipe(p) == 0);
	CHECK(splice(fd, NULL, p[1], NULL, 0, 0) == 0);
	close(p[0]);
	close(p[1]);
	return fd;
}

static int by_passing(int fd)
{
	int pair[2], got;
	char b = 0;
	char control[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec part = {&b, 1};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	CHECK(sendmsg(pair[0], &m, 0) == 1);
	CHECK(recvmsg(pair[1], &m, 0) == 1);
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof got);
	close(pair[0]);
	close(pair[1]);
	return got;
}

static int by_fork_and_dup(int fd)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(dup(fd) >= 0 ? 0 : 1);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return fd;
}

static int by_spawn(int fd)
{
	char *argv[] = {"true", NULL}, *env[] = {NULL};
	pid_t child;
	int status;
	CHECK(posix_spawnp(&child, "true", NULL, NULL, argv, env) == 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return fd;
}

static int by_vfork(int fd)
{
	int status;
	pid_t child = vfork();
	if (child == 0) {
		close(fd); /* of the child */
		execlp("true", "true", (char *)NULL);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return fd;
}

/* moving does what rings cannot in the middle of a transfer, while another thread writes. */
static void moving(char **arg)
{
	static const struct {
		const char *name;
		int (*how)(int);
	} ways[] = {{"dup", by_dup}, {"dup2", by_dup2}, {"fdopen", by_fdopen}, {"splice", by_splice}, {"passing", by_passing},
		    {"fork", by_fork_and_dup}, {"spawn", by_spawn}, {"vfork", by_vfork}};
	sigset_t child;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	CHECK(sigprocmask(SIG_BLOCK, &child, NULL) == 0); /* posix_spawn blocks it in its thread: another one's write may be cut short */
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (strcmp(arg[2], ways[i].name) == 0) {
			both(dial(arg), 4000000, ways[i].how);
			return;
		}
	CHECK(!"a way");
}

/* exec_reader reads half of the bytes; the next program, without the library, reads the rest. */
static void exec_reader(char **arg)
{
	const uint64_t bytes = 60000; /* they are in the rings, and in the stack */
	int fd = dial(arg);
	struct flow f = {fd, 0, bytes};
	write_all(&f);
	read_all(fd, 0, bytes / 3);
	char number[20];
	snprintf(number, sizeof number, "%d", fd);
	char *argv[] = {(char *)self, "inherited", number, "0", NULL}, *env[] = {NULL};
	execve(self, argv, env);
	CHECK(!"exec");
}

/* unread moves a socket that has all the peer has sent, with its FIN, in the ring. */
static void unread(char **arg)
{
	struct flow f = {dial(arg), 0, 60000};
	write_all(&f);
	CHECK(shutdown(f.fd, SHUT_WR) == 0);
	read_all(f.fd, 0, 20000);
	usleep(100000); /* for the FIN of the peer */
	int fd = dup(f.fd);
	CHECK(fd >= 0);
	read_all(fd, 20000, 50000);
	close(f.fd);
	usleep(20000);
	read_all(fd, 50000, 60000);
	char b;
	CHECK(read(fd, &b, 1) == 0);
}

/* ended reads all with the FIN, and sees it by poll. */
static void ended(char **arg)
{
	struct flow f = {dial(arg), 0, 60000};
	write_all(&f);
	CHECK(shutdown(f.fd, SHUT_WR) == 0);
	usleep(100000);
	struct pollfd p = {.fd = f.fd, .events = POLLIN | POLLRDHUP};
	read_all(f.fd, 0, 59999);
	CHECK(poll(&p, 1, 20000) == 1 && (p.revents & POLLIN) != 0);
	read_all(f.fd, 59999, 60000);
	CHECK(poll(&p, 1, 20000) == 1 && (p.revents & (POLLIN | POLLRDHUP)) == (POLLIN | POLLRDHUP));
	char b;
	CHECK(read(f.fd, &b, 1) == 0);
	CHECK(close(f.fd) == 0);
}

static void inherited(char **arg)
{
	const uint64_t bytes = 60000;
	read_all(atoi(arg[0]), bytes / 3, bytes);
	struct flow f = {atoi(arg[0]), 0, bytes};
	write_all(&f);
	read_all(atoi(arg[0]), 0, bytes);
	end(atoi(arg[0]));
}

/* epolls moves bytes with one thread and epoll. */
static void epolls(char **arg, uint32_t mode)
{
	const uint64_t bytes = 3000000;
	int fd = dial(arg), ep = epoll_create1(0);
	unsigned seed = 3;
	uint64_t out = 0, in = 0;
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | mode};
	nonblocking(fd);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
	while (in < bytes) {
		CHECK(epoll_wait(ep, &e, 1, 20000) == 1);
		while ((e.events & EPOLLOUT) != 0 && out < bytes) {
			size_t n = 1 + (size_t)rand_r(&seed) % BIGGEST;
			n = n < bytes - out ? n : (size_t)(bytes - out);
			ssize_t done = put(fd, out, n, &seed);
			CHECK(done > 0 || errno == EAGAIN);
			if (done > 0)
				out += (uint64_t)done;
			if (done < (ssize_t)n) /* as nginx: no call more after a short one */
				break;
		}
		while ((e.events & EPOLLIN) != 0) {
			size_t n = 1 + (size_t)rand_r(&seed) % BIGGEST;
			ssize_t done = get(fd, in, n, &seed);
			CHECK(done > 0 || (done < 0 && errno == EAGAIN));
			if (done > 0)
				in += (uint64_t)done;
			if (done < (ssize_t)n)
				break;
		}
		if (out == bytes && mode == 0) {
			struct epoll_event only = {.events = EPOLLIN};
			CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &only) == 0);
		}
	}
	struct pollfd p = {.fd = fd, .events = POLLIN};
	CHECK(poll(&p, 1, 0) == 0); /* nothing is left, not even a doorbell */
	CHECK(fcntl(fd, F_SETFL, O_RDWR) == 0);
	end(fd);
}

static void level(char **arg) { epolls(arg, 0); }
static void edge(char **arg) { epolls(arg, EPOLLET); }

/* full writes to a peer that does not read before it gets a signal: the second connection. */
static void full(char **arg)
{
	int fd = dial(arg);
	unsigned seed = 4;
	uint64_t out = 0;
	ssize_t n;
	nonblocking(fd);
	for (int pauses = 0; pauses < 20;) {
		while ((n = put(fd, out, 50000, &seed)) > 0) {
			out += (uint64_t)n;
			pauses = 0;
		}
		CHECK(errno == EAGAIN);
		usleep(10000);
		pauses++;
	}
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	CHECK(poll(&p, 1, 50) == 0);
	int ep = epoll_create1(0);
	struct epoll_event e = {.events = EPOLLOUT | EPOLLET};
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
	CHECK(epoll_wait(ep, &e, 1, 50) == 0);
	struct timeval limit = {.tv_usec = 30000};
	CHECK(fcntl(fd, F_SETFL, O_RDWR) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
	CHECK(put(fd, out, 50000, &seed) == -1 && errno == EAGAIN);
	int signal_fd = dial(arg); /* the peer reads now */
	CHECK(epoll_wait(ep, &e, 1, 20000) == 1 && e.events == EPOLLOUT);
	limit.tv_usec = 0;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
	struct flow f = {fd, out, out + 1000000};
	write_all(&f);
	CHECK(shutdown(fd, SHUT_WR) == 0);
	uint64_t got;
	CHECK(read(fd, &got, sizeof got) == sizeof got && got == f.to);
	close(signal_fd);
}

/* Sums of what several threads read from one socket. */
static _Atomic uint64_t sum, count;

static void *read_some(void *arg)
{
	uint8_t b[777];
	ssize_t n;
	while ((n = read(*(int *)arg, b, sizeof b)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			sum += b[i];
		count += (uint64_t)n;
	}
	CHECK(n == 0);
	return NULL;
}

static void *write_some(void *arg)
{
	uint8_t b[500];
	make(b, 0, sizeof b);
	for (int i = 0; i < 2000; i++)
		CHECK(write(*(int *)arg, b, sizeof b) == sizeof b);
	return NULL;
}

static void threads(char **arg)
{
	int fd = dial(arg);
	pthread_t readers[4], writers[4];
	for (int i = 0; i < 4; i++) {
		CHECK(pthread_create(&readers[i], NULL, read_some, &fd) == 0);
		CHECK(pthread_create(&writers[i], NULL, write_some, &fd) == 0);
	}
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(writers[i], NULL) == 0);
	CHECK(shutdown(fd, SHUT_WR) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(readers[i], NULL) == 0);
	uint64_t want = 0;
	for (int i = 0; i < 500; i++)
		want += byte_at((uint64_t)i);
	CHECK(count == 4 * 2000 * 500);
	CHECK(sum == 4 * 2000 * want);
}

/* forks lets processes share a socket: children write, the parent reads, and some children are killed. */
static void forks(char **arg)
{
	const int children = 6;
	int fd = dial(arg);
	pid_t pids[6];
	for (int i = 0; i < children; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (pids[i] == 0) {
			uint8_t b[300];
			memset(b, i < 3 ? 'k' : 'w', sizeof b);
			for (int n = 0; i < 3 || n < 1000; n++)
				CHECK(write(fd, b, sizeof b) == sizeof b);
			_exit(0);
		}
	}
	uint64_t whole = 0, killed = 0;
	while (whole < 3 * 1000 * 300) {
		uint8_t b[5000];
		ssize_t n = read(fd, b, sizeof b);
		CHECK(n > 0);
		for (ssize_t i = 0; i < n; i++) {
			CHECK(b[i] == 'k' || b[i] == 'w');
			whole += b[i] == 'w';
		}
		if (killed < 3 && whole > killed * 100000)
			CHECK(kill(pids[killed++], SIGKILL) == 0);
	}
	while (killed < 3)
		CHECK(kill(pids[killed++], SIGKILL) == 0);
	for (int i = 0; i < children; i++)
		CHECK(waitpid(pids[i], NULL, 0) == pids[i]);
	CHECK(shutdown(fd, SHUT_WR) == 0);
	uint8_t b[5000];
	ssize_t n;
	while ((n = read(fd, b, sizeof b)) > 0)
		;
	CHECK(n == 0);
}

static void on_alarm(int sig) { (void)sig; }

/* waits looks at timeouts and signals of blocking calls. */
static void waits(char **arg)
{
	char b[10];
	int fd = dial(arg), unread = -1;
	struct timeval limit = {.tv_usec = 30000};
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	CHECK(read(fd, b, sizeof b) == -1 && errno == EAGAIN);
	limit.tv_usec = 0;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	struct sigaction act = {.sa_handler = on_alarm};
	struct itimerval once = {.it_value = {.tv_usec = 30000}};
	CHECK(sigaction(SIGALRM, &act, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
	CHECK(read(fd, b, sizeof b) == -1 && errno == EINTR);
	act.sa_flags = SA_RESTART;
	CHECK(sigaction(SIGALRM, &act, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
	if (fork() == 0) {
		usleep(100000);
		CHECK(write(fd, "hello", 5) == 5);
		_exit(0);
	}
	CHECK(read(fd, b, sizeof b) == 5 && memcmp(b, "hello", 5) == 0);
	CHECK(recv(fd, b, sizeof b, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(write(fd, "abcdef", 6) == 6);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	CHECK(poll(&p, 1, 20000) == 1 && p.revents == POLLIN);
	CHECK(recv(fd, b, 2, MSG_PEEK) == 2);
	while (ioctl(fd, FIONREAD, &unread) == 0 && unread < 6)
		usleep(1000);
	CHECK(unread == 6);
	CHECK(recv(fd, b, 2, MSG_TRUNC) == 2);
	CHECK(poll(&p, 1, 0) == 1); /* bytes are left */
	CHECK(recv(fd, b, 4, MSG_WAITALL) == 4 && memcmp(b, "cdef", 4) == 0);
	CHECK(poll(&p, 1, 0) == 0);
	CHECK(read(fd, NULL, 0) == 0);
	CHECK(recv(fd, b, 1, MSG_OOB) == -1);
	end(fd);
}

/* files sends a file that the peer echoes. */
static void files(char **arg)
{
	const size_t bytes = 1500000;
	int fd = dial(arg), file = memfd_create("file", 0);
	uint8_t *b = malloc(bytes);
	make(b, 0, bytes);
	CHECK(write(file, b, bytes) == (ssize_t)bytes);
	nonblocking(fd);
	off_t at = 0;
	uint64_t in = 0;
	while (in < bytes) {
		unsigned seed = 5;
		struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (at < (off_t)bytes ? POLLOUT : 0))};
		CHECK(poll(&p, 1, 20000) == 1);
		off_t before = at;
		ssize_t n = (p.revents & POLLOUT) != 0 ? sendfile(fd, file, &at, bytes * 2) : 0;
		CHECK(n >= 0 || errno == EAGAIN);
		CHECK(at == before + (n > 0 ? n : 0));
		n = get(fd, in, BIGGEST, &seed);
		CHECK(n > 0 || errno == EAGAIN);
		in += n > 0 ? (uint64_t)n : 0;
	}
	CHECK(at == (off_t)bytes);
	CHECK(fcntl(fd, F_SETFL, O_RDWR) == 0);
	CHECK(lseek(file, 0, SEEK_SET) == 0);
	CHECK(sendfile(fd, file, NULL, 1000) == 1000 && lseek(file, 0, SEEK_CUR) == 1000);
	read_all(fd, 0, 1000);
	end(fd);
}

/* reuse closes sockets in several ways, and uses their numbers for files. */
static void reuse(char **arg)
{
	for (int i = 0; i < 40; i++) {
		int fd = dial(arg), p[2];
		CHECK(write(fd, "abc", 3) == 3);
		CHECK(pipe(p) == 0);
		if (i % 4 == 0)
			CHECK(close(fd) == 0);
		else if (i % 4 == 1)
			CHECK(close_range((unsigned)fd, (unsigned)fd, 0) == 0);
		else if (i % 4 == 2)
			CHECK(dup2(p[1], fd) == fd);
		else
			CHECK(dup3(p[1], fd, O_CLOEXEC) == fd);
		int at = i % 4 < 2 ? fcntl(p[1], F_DUPFD, fd) : fd;
		CHECK(at == fd);
		char b[4];
		CHECK(write(fd, "pipe", 4) == 4 && read(p[0], b, 4) == 4 && memcmp(b, "pipe", 4) == 0);
		close(fd);
		close(p[0]);
		close(p[1]);
	}
}

/* reset reads what a peer has sent before its reset, and then the reset. */
static void resets(char **arg)
{
	char b[100];
	int fd = dial(arg);
	ssize_t n, got = 0;
	CHECK(write(fd, "go", 2) == 2);
	while ((n = read(fd, b, sizeof b)) > 0)
		got += n;
	CHECK(n == -1 && errno == ECONNRESET);
	(void)got;
	CHECK(read(fd, b, sizeof b) == 0);
	CHECK(send(fd, b, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
}

/* sleeper is killed while it reads. */
static void sleeper(char **arg)
{
	int fd = dial(arg);
	char b;
	CHECK(write(fd, "x", 1) == 1);
	CHECK(read(fd, &b, 1) == 1);
	puts("ready");
	fflush(stdout);
	for (;;)
		CHECK(write(fd, "some bytes", 10) == 10);
}

/* server accepts connections at an address, forks for each, and echoes. */
static void server(char **arg)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arg[1]))};
	CHECK(inet_pton(AF_INET, arg[0], &at.sin_addr) == 1);
	int l = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(l, (struct sockaddr *)&at, sizeof at) == 0 && listen(l, 10) == 0);
	puts("ready");
	fflush(stdout);
	for (int i = 0; i < atoi(arg[2]); i++) {
		int fd = accept(l, NULL, NULL);
		CHECK(fd >= 0);
		if (fork() == 0) {
			static char b[50000];
			ssize_t n;
			close(l);
			while ((n = read(fd, b, sizeof b)) > 0)
				CHECK(write(fd, b, (size_t)n) == n);
			CHECK(n == 0);
			_exit(0);
		}
		close(fd);
	}
	for (int status; wait(&status) > 0;)
		CHECK(status == 0);
}

/* listen_at is the beginning of a server. */
static int listen_at(char **arg)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arg[1]))};
	CHECK(inet_pton(AF_INET, arg[0], &at.sin_addr) == 1);
	int l = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(l, (struct sockaddr *)&at, sizeof at) == 0 && listen(l, 10) == 0);
	puts("ready");
	fflush(stdout);
	return l;
}

/* victim accepts connections at an address, forks for each, and echoes until that fails in whatever way. */
static void victim(char **arg)
{
	int l = listen_at(arg);
	CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
	for (int i = 0; i < atoi(arg[2]); i++) {
		int fd = accept(l, NULL, NULL);
		CHECK(fd >= 0);
		if (fork() == 0) {
			static char b[50000];
			ssize_t n;
			close(l);
			if (i % 2 == 1)
				nonblocking(fd);
			struct pollfd p = {.fd = fd, .events = POLLIN};
			while ((n = read(fd, b, sizeof b)) > 0 || (n < 0 && errno == EAGAIN)) {
				if (n < 0)
					CHECK(poll(&p, 1, 20000) == 1);
				else if (write(fd, b, (size_t)n) < 0 && errno != EAGAIN)
					break;
			}
			_exit(0);
		}
		close(fd);
	}
	for (int status; wait(&status) > 0;)
		CHECK(status == 0);
}

/* await_unread waits until a socket has n bytes. */
static void await_unread(int fd, int n)
{
	int unread = 0;
	for (int i = 0; unread != n; i++) {
		CHECK(i < 20000 && ioctl(fd, FIONREAD, &unread) == 0);
		usleep(1000);
	}
}

/* rude closes a connection that has sent 2 bytes, without reading them, after a message of its own. */
static void rude(char **arg)
{
	int l = listen_at(arg);
	for (int i = 0; i < atoi(arg[2]); i++) {
		int fd = accept(l, NULL, NULL);
		CHECK(fd >= 0);
		await_unread(fd, 2);
		CHECK(write(fd, "last words", 10) == 10);
		CHECK(close(fd) == 0);
	}
}

/* lazy reads its first connection when there is a second one, and says how much there was. */
static void lazy(char **arg)
{
	static char b[30000];
	int l = listen_at(arg), fd = accept(l, NULL, NULL);
	uint64_t all = 0;
	ssize_t n;
	CHECK(fd >= 0 && accept(l, NULL, NULL) >= 0);
	while ((n = read(fd, b, sizeof b)) > 0) {
		verify((uint8_t *)b, all, (size_t)n);
		all += (uint64_t)n;
	}
	CHECK(n == 0 && write(fd, &all, sizeof all) == sizeof all);
}

/* trips makes round trips of one byte, each of which wakes both ends: they are not to wait for anything else. */
static void trips(char **arg)
{
	struct timespec begin, end;
	int fd = dial(arg);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (int i = 0; i < 2000; i++) {
		char b = (char)i;
		CHECK(write(fd, &b, 1) == 1 && read(fd, &b, 1) == 1 && b == (char)i);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	CHECK(end.tv_sec - begin.tv_sec < 10);
}

static const uint64_t chat = 150000; /* bytes */

/* chat_away writes a few bytes at a time, with pauses of different lengths. */
static void *chat_away(void *arg)
{
	unsigned seed = 7;
	for (uint64_t at = 0; at < chat;) {
		uint8_t b[3];
		size_t n = 1 + (size_t)rand_r(&seed) % 3;
		n = n < chat - at ? n : (size_t)(chat - at);
		make(b, at, n);
		CHECK(write(*(int *)arg, b, n) == (ssize_t)n);
		at += n;
		for (volatile int i = rand_r(&seed) % 2000; i > 0; i--)
			;
	}
	return NULL;
}

/* chatter moves small messages between programs that wait by poll(2), and read until nothing is left: each has to wake. */
static void chatter(char **arg)
{
	int idle = dial(arg), fd = dial(arg); /* the second one's server does not block */
	uint8_t b[1000];
	pthread_t writer;
	CHECK(pthread_create(&writer, NULL, chat_away, &fd) == 0);
	for (uint64_t at = 0; at < chat;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		CHECK(poll(&p, 1, 20000) == 1);
		ssize_t n = recv(fd, b, sizeof b, MSG_DONTWAIT);
		CHECK(n > 0 || (n < 0 && errno == EAGAIN));
		if (n > 0) {
			verify(b, at, (size_t)n);
			at += (uint64_t)n;
		}
	}
	CHECK(pthread_join(writer, NULL) == 0);
	close(idle);
	end(fd);
}

/* heir is the next program of handover. */
static void heir(char **arg)
{
	int fd = atoi(arg[0]);
	char b;
	read_all(fd, 0, 50000);
	if (strcmp(arg[1], "sleeps") == 0) {
		CHECK(read(fd, &b, 1) == -1 && errno == ECONNRESET);
		return;
	}
	if (strcmp(arg[1], "leaves") != 0)
		CHECK(write(fd, "ok", 2) == 2);
	CHECK(read(fd, &b, 1) == 0);
}

/* handover gives a connection with unread bytes to another program, as inetd does. */
static void handover(char **arg)
{
	int l = listen_at(arg), fd = accept(l, NULL, NULL), status;
	char number[12];
	CHECK(fd >= 0);
	close(l);
	await_unread(fd, 50000);
	snprintf(number, sizeof number, "%d", fd);
	if (strcmp(arg[2], "leaves") == 0)
		usleep(100000); /* it has ended by now */
	pid_t child = fork();
	if (child == 0) {
		execl(self, self, "heir", number, arg[2], "", NULL);
		_exit(9);
	}
	close(fd);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* giver is the peer of handover. */
static void giver(char **arg)
{
	char b[3];
	struct flow f = {dial(arg), 0, 50000};
	struct pollfd p = {.fd = f.fd, .events = POLLIN};
	write_all(&f);
	if (strcmp(arg[2], "leaves") == 0)
		_exit(0);
	if (strcmp(arg[2], "sleeps") == 0) {
		sleep(2);
		CHECK(read(f.fd, b, sizeof b) <= 0);
		return;
	}
	if (strcmp(arg[2], "shuts") == 0)
		CHECK(shutdown(f.fd, SHUT_WR) == 0);
	if (strcmp(arg[2], "polls") == 0) {
		nonblocking(f.fd);
		while (read(f.fd, b, sizeof b) != 2)
			CHECK(errno == EAGAIN && poll(&p, 1, 20000) == 1);
	} else {
		CHECK(read(f.fd, b, sizeof b) == 2);
	}
	CHECK(shutdown(f.fd, SHUT_WR) == 0 || strcmp(arg[2], "shuts") == 0);
	CHECK(fcntl(f.fd, F_SETFL, O_RDWR) == 0 && read(f.fd, b, 1) == 0);
}

/* orphan waits for the end of a peer that is killed. */
static void orphan(char **arg)
{
	char b;
	int fd = dial(arg);
	CHECK(write(fd, "x", 1) == 1 && read(fd, &b, 1) == 1);
	puts("ready");
	fflush(stdout);
	ssize_t n = read(fd, &b, 1);
	CHECK(n == 0 || (n == -1 && errno == ECONNRESET));
	send(fd, &b, 1, MSG_NOSIGNAL); /* the answer of TCP is a reset */
	CHECK(send(fd, &b, 1, MSG_NOSIGNAL) == -1 && (errno == EPIPE || errno == ECONNRESET));
}

/* storm is transfer while signals come. */
static void storm(char **arg)
{
	struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval often = {{.tv_usec = 300}, {.tv_usec = 300}};
	CHECK(sigaction(SIGALRM, &act, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	transfer(arg);
}

/* numbers uses a socket by several numbers, and closes them one after another. */
static void numbers(char **arg)
{
	char b[9];
	int fd = dial(arg), other = dup(fd), third = fcntl(other, F_DUPFD_CLOEXEC, 100), fourth = dup2(third, 200);
	CHECK(other >= 0 && third >= 100 && fourth == 200);
	int all[] = {fd, other, third, fourth};
	for (int i = 0; i < 4; i++) {
		for (int j = i; j < 4; j++) {
			CHECK(write(all[j], "abcdef", 6) == 6);
			await_unread(all[j], 6);
			CHECK(read(all[i], b, 2) == 2 && read(all[j], b + 2, 4) == 4 && memcmp(b, "abcdef", 6) == 0);
		}
		if (i == 1) /* the flags are those of all */
			nonblocking(all[2]);
		if (i == 2)
			CHECK(read(all[3], b, 1) == -1 && errno == EAGAIN);
		if (i < 3)
			CHECK(close(all[i]) == 0);
	}
	CHECK(fcntl(200, F_SETFL, O_RDWR) == 0);
	end(200);
}

/* edges makes calls whose results on the kernel's stack are here. */
static void edges(char **arg)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arg[1]))}, from;
	CHECK(inet_pton(AF_INET, arg[0], &to.sin_addr) == 1);
	static char big[70000];
	char b[8];
	int fd = dial(arg);

	/* TCP shows no address of the sender, and takes none of a receiver. */
	struct iovec part = {b, 1};
	struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};
	CHECK(sendmsg(fd, &m, 0) == 1 && send(fd, b, 1, 0) == 1);
	memset(&from, 0x55, sizeof from);
	socklen_t len = sizeof from;
	CHECK(recvfrom(fd, b, 1, 0, (struct sockaddr *)&from, &len) == 1 && len == 0 && from.sin_family == 0x5555);
	m = (struct msghdr){.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1};
	CHECK(recvmsg(fd, &m, 0) == 1 && m.msg_namelen == 0 && from.sin_family == 0x5555);
	close(fd);

	/* Numbers of inet_aton(3) are no names. */
	struct addrinfo *list = NULL;
	CHECK(getaddrinfo("127.1", "80", NULL, &list) == 0);
	CHECK(((struct sockaddr_in *)list->ai_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	freeaddrinfo(list);
	CHECK(getaddrinfo("127.1 x", "80", NULL, &list) != 0);

	/* docs/shim.md: programs fall back to connect. They would not survive SIGPIPE. */
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(sendto(fd, b, 1, MSG_FASTOPEN, (struct sockaddr *)&to, sizeof to) == -1 && errno == EOPNOTSUPP);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	close(fd);

	fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(send(fd, b, 1, 0) == -1 && errno == EDESTADDRREQ);
	CHECK(sendto(fd, big, 65508, 0, (struct sockaddr *)&to, sizeof to) == -1 && errno == EMSGSIZE);
	CHECK(sendto(fd, big, 65507, 0, (struct sockaddr *)&to, sizeof to) == 65507);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	CHECK(send(fd, big, 65508, 0) == -1 && errno == EMSGSIZE);
	CHECK(send(fd, big, 65507, 0) == 65507);
	close(fd);
}

static int descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 2000; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* borrowed makes requests in children of vfork(2), which have the memory of the parent and descriptors of their own. */
static void borrowed(char **arg)
{
	int fd = dial(arg), before = descriptors();
	for (int i = 0; i < 20; i++) {
		pid_t child = vfork();
		if (child == 0) {
			int one = 1;
			_exit(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0);
		}
		int status, one = 1;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
	}
	CHECK(descriptors() == before);
	close(fd);
}

/* restarts writes while signals come, to a peer that does not read at first. */
static void restarts(char **arg)
{
	static char b[1 << 20];
	int fd = dial(arg), interrupted = 0;
	struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval often = {{.tv_usec = 20000}, {.tv_usec = 20000}}, never = {0};
	CHECK(sigaction(SIGALRM, &act, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (ssize_t n, left = 8 << 20; left > 0; left -= n) {
		n = write(fd, b, left < (ssize_t)sizeof b ? (size_t)left : sizeof b);
		CHECK(n > 0);
	}
	CHECK(read(fd, b, 1) == 1);
	act.sa_flags = 0;
	CHECK(sigaction(SIGALRM, &act, NULL) == 0);
	while (!interrupted) {
		ssize_t n = write(fd, b, sizeof b);
		interrupted = n < 0 && errno == EINTR;
		CHECK(n > 0 || interrupted);
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	close(fd);
}

static int error_of(int fd)
{
	int error = -1;
	socklen_t len = sizeof error;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
	return error;
}

/* errors asks for SO_ERROR of a connection often, and then until a reset has come. */
static void errors(char **arg)
{
	int fd = dial(arg), error = 0;
	for (int i = 0; i < 200; i++)
		CHECK(error_of(fd) == 0);
	CHECK(write(fd, "go", 2) == 2);
	for (int i = 0; i < 20000 && error == 0; i++) {
		error = error_of(fd);
		usleep(1000);
	}
	CHECK(error == ECONNRESET);
	CHECK(error_of(fd) == 0);
	close(fd);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(char **);
	} all[] = {{"echo", echo}, {"transfer", transfer}, {"moving", moving}, {"exec", exec_reader}, {"inherited", inherited}, {"unread", unread}, {"ended", ended},
		   {"level", level}, {"edge", edge}, {"full", full}, {"threads", threads}, {"forks", forks}, {"waits", waits},
		   {"files", files}, {"reuse", reuse}, {"resets", resets}, {"sleeper", sleeper}, {"server", server},
		   {"victim", victim}, {"rude", rude}, {"lazy", lazy}, {"trips", trips}, {"chatter", chatter}, {"heir", heir}, {"handover", handover},
		   {"giver", giver}, {"orphan", orphan}, {"storm", storm}, {"numbers", numbers}, {"edges", edges}, {"borrowed", borrowed}, {"restarts", restarts}, {"errors", errors}};
	self = argv[0];
	for (size_t i = 0; i < sizeof all / sizeof *all && argc > 3; i++)
		if (strcmp(argv[1], all[i].name) == 0) {
			all[i].run(argv + 2);
			return 0;
		}
	return 2;
}
