/*
 * unseen.c - calls that no function of libc makes: by syscall(2) with a number, by io_uring, and by an instruction of the
 * program's own. It connects to an address and port, where a server echoes, and compares what comes back.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define SKIPPED 77
#define BYTES 200000

#define CHECK(x)                                                                             \
	do {                                                                                 \
		if (!(x)) {                                                                  \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #x, strerror(errno)); \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

static uint8_t out[BYTES], in[BYTES];

static int dial(char **arg)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arg[1]))};
	CHECK(inet_pton(AF_INET, arg[0], &to.sin_addr) == 1);
	int fd = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0 && syscall(SYS_connect, fd, &to, sizeof to) == 0);
	return fd;
}

static long put(int fd, int way, uint8_t *b, size_t n)
{
	struct iovec parts[2] = {{b, n / 3}, {b + n / 3, n - n / 3}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
	struct mmsghdr many = {.msg_hdr = m};
	switch (way % 5) {
	case 0: return syscall(SYS_write, fd, b, n);
	case 1: return syscall(SYS_writev, fd, parts, 2);
	case 2: return syscall(SYS_sendto, fd, b, n, 0, NULL, 0);
	case 3: return syscall(SYS_sendmsg, fd, &m, 0);
	}
	return syscall(SYS_sendmmsg, fd, &many, 1, 0) == 1 ? (long)many.msg_len : -1;
}

static long get(int fd, int way, uint8_t *b, size_t n)
{
	struct iovec parts[2] = {{b, n / 3}, {b + n / 3, n - n / 3}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
	struct mmsghdr many = {.msg_hdr = m};
	switch (way % 5) {
	case 0: return syscall(SYS_read, fd, b, n);
	case 1: return syscall(SYS_readv, fd, parts, 2);
	case 2: return syscall(SYS_recvfrom, fd, b, n, 0, NULL, NULL);
	case 3: return syscall(SYS_recvmsg, fd, &m, 0);
	}
	return syscall(SYS_recvmmsg, fd, &many, 1, 0, NULL) == 1 ? (long)many.msg_len : -1;
}

/* echo moves the bytes from at on in pieces, the other way after each. ways is how many of put and get it uses. */
static void echo(int fd, size_t from, size_t to, int ways)
{
	for (size_t at = from, i = 0; at < to; i++) {
		size_t n = to - at < 1500 ? to - at : 1500;
		CHECK(put(fd, (int)i % ways, out + at, n) == (long)n);
		for (size_t got = 0; got < n;) {
			long m = get(fd, (int)(i + got) % ways, in + at + got, n - got);
			CHECK(m > 0);
			got += (size_t)m;
		}
		at += n;
	}
	CHECK(memcmp(in + from, out + from, to - from) == 0);
}

/* numbers uses system calls by number. The last of the ways moves the socket. */
static void numbers(char **arg)
{
	int fd = dial(arg);
	echo(fd, 0, BYTES / 2, 4);
	echo(fd, BYTES / 2, BYTES, 5);
	CHECK(syscall(SYS_shutdown, fd, SHUT_WR) == 0);
	CHECK(syscall(SYS_read, fd, in, 1) == 0);
	CHECK(syscall(SYS_close, fd) == 0);
}

/* uring reads what is in a ring when the instance is made, and what comes behind, by one request after the other. */
static void uring(char **arg)
{
	struct io_uring_params p = {0};
	int fd = dial(arg);
	echo(fd, 0, 3000, 4);
	CHECK(write(fd, out + 3000, 60000) == 60000);
	usleep(50000); /* it waits in the ring by now */
	int ring = (int)syscall(SYS_io_uring_setup, 4, &p);
	if (ring < 0 && (errno == ENOSYS || errno == EPERM))
		exit(SKIPPED);
	CHECK(ring >= 0 && (p.features & IORING_FEAT_SINGLE_MMAP) != 0);
	size_t size = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
	char *q = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	struct io_uring_sqe *e = mmap(NULL, p.sq_entries * sizeof *e, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	CHECK(q != MAP_FAILED && e != MAP_FAILED);
	for (size_t at = 3000; at < 63000;) {
		unsigned *tail = (unsigned *)(q + p.sq_off.tail), *head = (unsigned *)(q + p.cq_off.head);
		*e = (struct io_uring_sqe){.opcode = IORING_OP_RECV, .fd = fd, .addr = (uintptr_t)(in + at), .len = (unsigned)(63000 - at)};
		((unsigned *)(q + p.sq_off.array))[*tail & (p.sq_entries - 1)] = 0;
		__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
		CHECK(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
		struct io_uring_cqe *c = (struct io_uring_cqe *)(q + p.cq_off.cqes) + (*head & (p.cq_entries - 1));
		CHECK(c->res > 0);
		at += (size_t)c->res;
		__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	}
	CHECK(memcmp(in + 3000, out + 3000, 60000) == 0);
	int next = dial(arg); /* has no rings */
	CHECK(write(next, "x", 1) == 1 && read(next, in, 1) == 1);
}

#ifdef __x86_64__
/* rude writes by an instruction: the connection is to end, and no byte of that is to arrive. */
static void rude(char **arg)
{
	int fd = dial(arg);
	echo(fd, 0, 3000, 4);
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "0"(SYS_write), "D"(fd), "S"(out), "d"(2000L) : "rcx", "r11", "memory");
	CHECK(result == 2000);
	long n = read(fd, in, sizeof in);
	CHECK(n < 0 && (errno == EPROTO || errno == ECONNRESET));
}
#else
static void rude(char **arg)
{
	(void)arg;
	exit(SKIPPED);
}
#endif

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof out; i++)
		out[i] = (uint8_t)((i * 0x9e3779b97f4a7c15u) >> 56);
	if (argc != 4)
		return 2;
	if (strcmp(argv[1], "numbers") == 0)
		numbers(argv + 2);
	else if (strcmp(argv[1], "uring") == 0)
		uring(argv + 2);
	else if (strcmp(argv[1], "rude") == 0)
		rude(argv + 2);
	else
		return 2;
	return 0;
}
