/*
 * client.c - programs of the tests: each is what its first argument names, and connects to the address and port behind,
 * where a server echoes. Exit code 0 is that all was as over the kernel's TCP.
 */
#include "client.h"

const char *self;

void check(int ok, const char *what, const char *file, int line)
{
	if (ok)
		return;
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, strerror(errno));
	_exit(1);
}

int dial(char **arg)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arg[1]))};
	CHECK(inet_pton(AF_INET, arg[0], &to.sin_addr) == 1);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	return fd;
}

void nonblocking(int fd)
{
	CHECK(fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) == 0);
}

uint8_t byte_at(uint64_t at)
{
	return (uint8_t)((at * 0x9e3779b97f4a7c15u) >> 56);
}

void make(uint8_t *b, uint64_t at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		b[i] = byte_at(at + i);
}

void verify(const uint8_t *b, uint64_t at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (b[i] != byte_at(at + i)) {
			fprintf(stderr, "byte %llu is wrong\n", (unsigned long long)(at + i));
			_exit(1);
		}
}

ssize_t put(int fd, uint64_t at, size_t n, unsigned *seed)
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

ssize_t get(int fd, uint64_t at, size_t n, unsigned *seed)
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

bool signals_come;

void *write_all(void *arg)
{
	struct flow *f = arg;
	unsigned seed = 1;
	while (f->from < f->to) {
		size_t n = (size_t)(rand_r(&seed) % 3 == 0 ? rand_r(&seed) % BIGGEST : rand_r(&seed) % 300) + 1;
		if (n > f->to - f->from)
			n = (size_t)(f->to - f->from);
		ssize_t put_bytes = put(f->fd, f->from, n, &seed);
		CHECK(put_bytes == (ssize_t)n || (signals_come && put_bytes > 0)); /* a blocking socket */
		f->from += (uint64_t)put_bytes;
	}
	return NULL;
}

void read_all(int fd, uint64_t from, uint64_t to)
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

void end(int fd)
{
	char b;
	CHECK(shutdown(fd, SHUT_WR) == 0);
	CHECK(read(fd, &b, 1) == 0);
	CHECK(send(fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	CHECK(close(fd) == 0);
}

void both(int fd, uint64_t bytes, int (*between)(int fd))
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

int descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 2000; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

void on_alarm(int sig) { (void)sig; }

void await_unread(int fd, int n)
{
	int unread = 0;
	for (int i = 0; unread != n; i++) {
		CHECK(i < 20000 && ioctl(fd, FIONREAD, &unread) == 0);
		usleep(1000);
	}
}

int main(int argc, char **argv)
{
	static const struct part *all[] = {leaving, waiting, sharing, jumping, calls, pairs};
	self = argv[0];
	for (size_t i = 0; i < sizeof all / sizeof *all && argc > 3; i++)
		for (const struct part *p = all[i]; p->name != NULL; p++)
			if (strcmp(argv[1], p->name) == 0) {
				p->run(argv + 2);
				return 0;
			}
	return 2;
}
