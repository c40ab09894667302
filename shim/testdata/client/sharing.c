/* sharing.c - threads and processes that use one socket, and numbers that are used again. */
#include "client.h"

#include "../rings.h"

#include <linux/futex.h>
#include <stdbool.h>

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

/* The futex of the lock that writers of a socket with rings take; NULL without rings. */
static _Atomic uint32_t *writers_lock;

static void find_lock(struct ring_page *page)
{
	writers_lock = (_Atomic uint32_t *)page->own; /* struct ring_side: the first member of its first lock in glibc */
}

static void *write_one(void *fd)
{
	CHECK(write(*(int *)fd, "x", 1) == 1);
	return NULL;
}

/*
 * lost_wakeup frees the lock of the writers while a thread waits for it, without waking that: so it is after a process was killed that
 * had been woken, and a third has had the lock meanwhile.
 */
static void lost_wakeup(char **arg)
{
	int fd = dial(arg);
	bool rings = each_ring(find_lock) > 0;
	pthread_t writer;
	char b;
	if (rings)
		*writers_lock = (uint32_t)getpid();
	CHECK(pthread_create(&writer, NULL, write_one, &fd) == 0);
	while (rings && (*writers_lock & FUTEX_WAITERS) == 0)
		usleep(1000);
	usleep(5000); /* it sleeps */
	if (rings)
		*writers_lock = 0;
	alarm(10);
	CHECK(pthread_join(writer, NULL) == 0);
	CHECK(read(fd, &b, 1) == 1);
	close(fd);
}

const struct part sharing[] = {
	{"lost-wakeup", lost_wakeup},
	{"threads", threads},
	{"forks", forks},
	{"reuse", reuse},
	{"borrowed", borrowed},
	{NULL, NULL},
};
