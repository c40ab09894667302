/* waiting.c - epoll, timeouts and signals of sockets that have nothing to read, or no space. */
#include "client.h"

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
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	nonblocking(fd);
	for (int pauses = 0; pauses < 20;) {
		while ((n = put(fd, out, 50000, &seed)) > 0) {
			out += (uint64_t)n;
			pauses = 0;
		}
		CHECK(errno == EAGAIN);
		pauses = poll(&p, 1, 15) == 0 ? pauses + 1 : 0; /* a busy machine may take long to fill all buffers */
	}
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

const struct part waiting[] = {
	{"level", level},
	{"edge", edge},
	{"full", full},
	{"waits", waits},
	{"sleeper", sleeper},
	{"restarts", restarts},
	{NULL, NULL},
};
