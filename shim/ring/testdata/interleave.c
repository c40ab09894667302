/*
 * interleave.c - both ends of rings between two programs in one process, as two fibers that run the library's own code. Before each access
 * to a shared word, and each system call, a seeded scheduler decides which of them goes on. A writer sends numbered bytes, and a reader
 * checks them. What is asked for, in each order: no end waits for ever, a socket that poll(2) calls readable gives bytes or the end, and
 * each byte comes once, whoever leaves the ring, and when.
 *
 * usage: interleave FIRST LAST, which are seeds
 */
#include "ringend.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <ucontext.h>

#define RING 4096
#define STACK (256 << 10)
#define MOST 200000 /* steps of a schedule */

enum { WRITER, READER, ENDS };
static struct fiber {
	ucontext_t at;
	char *stack;
	bool done;
	uint32_t asleep; /* where in the page the word of futex(2) is, and 1; the ends have mappings of their own */
	bool soon;       /* that ends by itself in some ms */
	bool (*until)(int fd); /* what a call waits for */
	int fd;
} fibers[ENDS];
static struct fiber *current;
static ucontext_t outside;
static uint64_t random_state, seed;
static int steps;
static long (*kernel)(long, ...);

/* How the ends behave: from the seed. */
static struct {
	size_t bytes, write_most, read_most;
	int reads;  /* NONBLOCKING, EDGES, BLOCKING */
	int leaves; /* after how many bytes the writer leaves the ring, or -1 */
	int goes;   /* after how many bytes the reader does, or -1 */
	int end;    /* CLOSE, SHUT */
	uint32_t turn; /* an end goes on for so many steps, on average */
} plan, planned;
enum { NONBLOCKING, EDGES, BLOCKING };
enum { CLOSE, SHUT };

static uint32_t roll(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % n;
}

static void wrong(const char *what, long n)
{
	struct ring_page *p = NULL;
	for (int fd = 3; fd < 64 && p == NULL; fd++)
		p = rings_of[fd].users != 0 ? rings_of[fd].page : NULL;
	printf("seed %lu: %s (%ld); %zu bytes, by %zu and %zu, reads %d, leaves %d, goes %d, end %d\n", (unsigned long)seed, what, n, plan.bytes,
	       plan.write_most, plan.read_most, plan.reads, planned.leaves, planned.goes, plan.end);
	if (p != NULL)
		printf("tail %lx head %lx notified %lx arm %lx space %x freed %x gone %x\n", p->direction[0].tail, p->direction[0].head,
		       p->direction[0].notified, p->direction[0].arm, p->direction[0].space, p->direction[0].freed, p->direction[0].gone);
	exit(1);
}

static bool runs(const struct fiber *f)
{
	return !f->done && f->asleep == 0 && (f->until == NULL || f->until(f->fd));
}

static void switch_to(struct fiber *f)
{
	struct fiber *from = current;
	if (f == from)
		return;
	current = f;
	swapcontext(&from->at, &f->at);
}

/* pick lets one of the ends go on that can. Where none can, the one that waits does so for ever. */
static void pick(bool other)
{
	struct fiber *a = current, *b = &fibers[a == &fibers[WRITER] ? READER : WRITER];
	if (a->done && b->done)
		setcontext(&outside);
	for (int i = 0; i < ENDS && !runs(a) && !runs(b); i++)
		if (fibers[i].soon)
			fibers[i].asleep = 0;
	if (!runs(a) && !runs(b))
		wrong("an end waits for ever", a - fibers);
	if (!runs(a) || (runs(b) && (other || roll(plan.turn) == 0)))
		switch_to(b);
}

void step(void)
{
	if (current == NULL)
		return;
	if (++steps > MOST)
		wrong("it goes on for ever", steps);
	pick(false);
}

static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

static bool is_writable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	return poll(&p, 1, 0) == 1;
}

static void wait_until(bool (*until)(int), int fd)
{
	current->until = until;
	current->fd = fd;
	pick(false);
	current->until = NULL;
}

static uint32_t place(uint64_t word)
{
	return (uint32_t)(word & (RING_HEADER - 1)) + 1;
}

/* call is the kernel, where what blocks lets the other end run. */
static long call(long number, ...)
{
	long a[6];
	va_list list;
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (current == NULL)
		return kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	step();
	switch (number) {
	case SYS_sched_yield:
		pick(true);
		return 0;
	case 449: { /* futex_waitv */
		struct { uint64_t value, address; } *w = (void *)a[0];
		if (*(uint32_t *)w->address != w->value) {
			errno = EAGAIN;
			return -1;
		}
		current->asleep = place(w->address);
		struct timespec *at = (void *)a[3];
		current->soon = (uint64_t)at->tv_sec * 1000000000 + (uint64_t)at->tv_nsec < now() + RING_SLEEP / 2;
		pick(false);
		return 0;
	}
	case SYS_futex: /* FUTEX_WAKE */
		for (int i = 0; i < ENDS; i++)
			if (fibers[i].asleep == place((uint64_t)a[0]))
				fibers[i].asleep = 0;
		return 1;
	case SYS_recvfrom:
		if ((a[3] & MSG_DONTWAIT) == 0)
			wait_until(is_readable, (int)a[0]);
		break;
	case SYS_ppoll: {
		struct pollfd *p = (void *)a[0];
		struct timespec *t = (void *)a[2];
		if (t == NULL)
			wait_until((p->events & POLLOUT) != 0 ? is_writable : is_readable, p->fd);
		else if (t->tv_nsec > 0)
			pick(true);
		return kernel(number, a[0], 1, &(struct timespec){0, 0}, NULL, 0, 0);
	}
	}
	return kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* The process sleeps through sched_yield(3), too. */
int sched_yield(void)
{
	if (current != NULL) {
		step();
		pick(true);
	}
	return 0;
}

static int ends[ENDS];
static bool leaving; /* an end leaves the ring, or has */

/* put and get are write and read, of which the part of the kernel must not wait. */
static ssize_t put(int fd, uint8_t *b, size_t n)
{
	struct iovec part = {b, n};
	ssize_t result;
	return stream_send(fd, &part, 1, 0, &result) ? result : KERNEL(sendto, fd, b, n, MSG_DONTWAIT, NULL, 0);
}

static ssize_t get(int fd, uint8_t *b, size_t n)
{
	struct iovec part = {b, n};
	ssize_t result;
	return stream_receive(fd, &part, 1, 0, &result) ? result : KERNEL(recvfrom, fd, b, n, plan.reads == BLOCKING ? 0 : MSG_DONTWAIT, NULL, NULL);
}

static uint8_t byte_of(size_t at)
{
	return (uint8_t)(at * 31 + at / 251);
}

static void write_all(void)
{
	int fd = ends[WRITER];
	uint8_t b[8192];
	for (size_t at = 0; at < plan.bytes;) {
		if (plan.leaves >= 0 && at >= (size_t)plan.leaves) {
			leaving = true;
			rings_leave(fd);
			plan.leaves = -1;
		}
		size_t n = 1 + roll((uint32_t)plan.write_most);
		n = n < plan.bytes - at ? n : plan.bytes - at;
		for (size_t i = 0; i < n; i++)
			b[i] = byte_of(at + i);
		ssize_t wrote = put(fd, b, n);
		if (wrote < 0 && errno != EAGAIN)
			wrong("write", errno);
		if (wrote < 0)
			wait_until(is_writable, fd);
		at += wrote > 0 ? (size_t)wrote : 0;
	}
	leaving = true;
	if (plan.end == SHUT) {
		if (shutdown(fd, SHUT_WR) != 0)
			wrong("shutdown", errno);
		wait_until(is_readable, fd); /* the reader has closed */
	}
	close(fd);
	current->done = true;
	pick(false);
}

static void read_all(void)
{
	int fd = ends[READER];
	uint8_t b[8192];
	bool empty = true, told = false;
	for (size_t at = 0;;) {
		if (plan.goes >= 0 && at >= (size_t)plan.goes) {
			leaving = true;
			rings_leave(fd);
			plan.goes = -1;
			empty = true;
		}
		if (plan.reads != BLOCKING && (empty || plan.reads == NONBLOCKING)) {
			wait_until(is_readable, fd);
			told = true;
		}
		size_t n = 1 + roll((uint32_t)plan.read_most);
		ssize_t got = get(fd, b, n);
		if (got < 0 && errno == EAGAIN) {
			if (told && plan.reads == NONBLOCKING && !leaving) /* bytes may be on their way from the ring to the socket */
				wrong("a readable socket has nothing", (long)at);
			empty = true;
			continue;
		}
		if (got < 0 && errno == ECONNRESET && planned.goes >= 0 && at == plan.bytes)
			continue; /* the doorbell byte that asks the writer to leave the ring came when it closed */
		if (got < 0)
			wrong("read", errno);
		if (got == 0 && at != plan.bytes)
			wrong("the end comes early", (long)at);
		if (got == 0)
			break;
		for (ssize_t i = 0; i < got; i++)
			if (at + (size_t)i >= plan.bytes || b[i] != byte_of(at + (size_t)i))
				wrong("another byte", (long)at + i);
		at += (size_t)got;
		empty = got < (ssize_t)n; /* a short read: an edge follows */
		told = false;
	}
	close(fd);
	current->done = true;
	pick(false);
}

/* make_ends attaches both ends of new memory. */
static void make_ends(void)
{
	int memory = memfd_create("ring", MFD_ALLOW_SEALING), flags = plan.reads == BLOCKING ? 0 : SOCK_NONBLOCK;
	if (memory < 0 || ftruncate(memory, RING_HEADER + 2 * RING) != 0 || fcntl(memory, F_ADD_SEALS, 7) != 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | flags, 0, ends) != 0)
		wrong("setup", errno);
	struct ring_page *p = mmap(NULL, RING_HEADER, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	p->magic = RING_MAGIC;
	p->version = RING_VERSION;
	p->size = RING;
	munmap(p, RING_HEADER);
	struct shim_memory of = {RING, RING_ENDS_PROGRAMS};
	rings_attach(ends[WRITER], dup(memory), &of, true);
	rings_attach(ends[READER], memory, &of, false);
}

static void run(uint64_t s)
{
	seed = s;
	random_state = s * 0x9e3779b97f4a7c15u + 1;
	static const size_t sizes[] = {1, 2, 3, 64, 3000, 6000};
	plan.write_most = sizes[roll(6)];
	plan.read_most = sizes[roll(6)];
	plan.bytes = plan.write_most < 100 && plan.read_most < 100 ? 1 + roll(40) : plan.write_most < 10 || plan.read_most < 10 ? 1 + roll(60) : 9000;
	plan.reads = (int)roll(3);
	plan.leaves = roll(3) == 0 ? (int)roll((uint32_t)plan.bytes) : -1;
	plan.goes = roll(3) == 0 ? (int)roll((uint32_t)plan.bytes) : -1;
	plan.end = (int)roll(2);
	static const uint32_t turns[] = {2, 4, 12, 40};
	plan.turn = turns[roll(4)];
	planned = plan;
	steps = 0;
	leaving = false;
	make_ends();
	for (int i = 0; i < ENDS; i++) {
		char *stack = fibers[i].stack != NULL ? fibers[i].stack : malloc(STACK);
		fibers[i] = (struct fiber){.stack = stack};
		getcontext(&fibers[i].at);
		fibers[i].at.uc_stack.ss_sp = stack;
		fibers[i].at.uc_stack.ss_size = STACK;
		fibers[i].at.uc_link = NULL;
		makecontext(&fibers[i].at, i == WRITER ? write_all : read_all, 0);
	}
	current = &fibers[roll(ENDS)];
	swapcontext(&outside, &current->at);
	current = NULL;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	kernel = system_call;
	system_call = call;
	for (uint64_t s = strtoull(argv[1], NULL, 10); s <= strtoull(argv[2], NULL, 10); s++)
		run(s);
	puts("ok");
	return 0;
}
