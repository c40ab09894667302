/* jumps.c - signal handlers that leave a call, or jump within themselves, while the library holds a lock. */

#include "client.h"

#include <setjmp.h>
#include <stdbool.h>
#include <time.h>

static sigjmp_buf out;

static void leave(int sig)
{
	siglongjmp(out, sig);
}

static void on_fault(void (*handler)(int), int flags)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
	CHECK(sigaction(SIGSEGV, &act, NULL) == 0);
}

/* answered sends bytes to an echo server, and reads them back. */
static void *answered(void *arg)
{
	uint8_t b[300], back[300];
	int fd = *(int *)arg;
	make(b, 7, sizeof b);
	CHECK(send(fd, b, sizeof b, MSG_NOSIGNAL) == sizeof b);
	CHECK(recv(fd, back, sizeof back, MSG_WAITALL) == sizeof back && memcmp(b, back, sizeof b) == 0);
	return NULL;
}

/* polled is answered by a thread that waits by poll(2). */
static void *polled(void *arg)
{
	uint8_t b[300], back[300];
	int fd = *(int *)arg;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	make(b, 7, sizeof b);
	CHECK(send(fd, b, sizeof b, MSG_NOSIGNAL) == sizeof b);
	CHECK(poll(&p, 1, 10000) == 1 && p.revents == POLLIN);
	CHECK(recv(fd, back, sizeof back, MSG_WAITALL) == sizeof back && memcmp(b, back, sizeof b) == 0);
	return NULL;
}

/* usable is that this thread and others can go on with the socket. */
static void usable(int fd)
{
	pthread_t t;
	CHECK(pthread_create(&t, NULL, answered, &fd) == 0 && pthread_join(t, NULL) == 0);
	answered(&fd);
}

static char *unreadable;

/* wrong reads or writes where no memory is: EFAULT, or a signal where the library copies. */
static void wrong(int fd, bool reads)
{
	if (sigsetjmp(out, 1) == 0) {
		ssize_t n = reads ? read(fd, unreadable, 100) : write(fd, unreadable, 100);
		CHECK(n == -1 && errno == EFAULT);
	}
}

/* jumps leaves calls by siglongjmp(3). */
static void jumps(char **arg)
{
	char b;
	int fd = dial(arg);
	unreadable = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(unreadable != MAP_FAILED);
	alarm(20);
	answered(&fd);
	for (int i = 0; i < 12; i++) {
		static char other[1 << 16];
		stack_t alternate = {.ss_sp = other, .ss_size = sizeof other, .ss_flags = i % 2 ? 0 : SS_DISABLE};
		CHECK(sigaltstack(&alternate, NULL) == 0);
		on_fault(leave, SA_ONSTACK);
		wrong(fd, false);
		usable(fd);
		CHECK(write(fd, "x", 1) == 1);
		await_unread(fd, 1);
		wrong(fd, true);
		CHECK(read(fd, &b, 1) == 1 && b == 'x');
		usable(fd);
	}
	end(fd);
}

static int stays_fd;
static _Atomic bool stays_done;

static void *write_beside(void *unused)
{
	CHECK(write(stays_fd, "behind", 6) == 6);
	stays_done = true;
	return unused;
}

static pthread_t beside;

/* stay jumps within the handler, and returns to the call: that has its lock meanwhile, and afterwards. */
static void stay(int sig)
{
	sigjmp_buf in;
	if (sigsetjmp(in, 0) == 0)
		siglongjmp(in, sig);
	CHECK(pthread_create(&beside, NULL, write_beside, NULL) == 0);
	usleep(50000);
	CHECK(!stays_done);
	CHECK(mprotect(unreadable, 4096, PROT_READ | PROT_WRITE) == 0);
}

static void stays(char **arg)
{
	char back[106];
	stays_fd = dial(arg);
	alarm(20);
	for (int i = 0; i < 4; i++) {
		static char other[1 << 16];
		stack_t alternate = {.ss_sp = other, .ss_size = sizeof other, .ss_flags = i % 2 ? 0 : SS_DISABLE};
		CHECK(sigaltstack(&alternate, NULL) == 0);
		unreadable = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(unreadable != MAP_FAILED);
		on_fault(stay, SA_ONSTACK);
		stays_done = false;
		ssize_t n = write(stays_fd, unreadable, 100);
		if (n < 0) { /* no rings: the kernel has copied */
			CHECK(errno == EFAULT);
			break;
		}
		CHECK(n == 100 && pthread_join(beside, NULL) == 0);
		CHECK(recv(stays_fd, back, sizeof back, MSG_WAITALL) == sizeof back);
		CHECK(back[0] == 0 && memcmp(back + 100, "behind", 6) == 0);
	}
	end(stays_fd);
}

static void after(int ms)
{
	struct itimerval once = {.it_value = {.tv_usec = ms * 1000}};
	CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
}

#define CHUNK 10000

static int full_fd;

/* rest ends the stream of a socket in another thread, and returns how many bytes of it came back. */
static void *rest(void *got)
{
	static uint8_t b[CHUNK];
	ssize_t n;
	time_t begin = time(NULL);
	CHECK(shutdown(full_fd, SHUT_WR) == 0);
	CHECK(time(NULL) - begin < 20); /* a lock that is taken makes it wait for a minute */
	while ((n = read(full_fd, b, sizeof b)) > 0) {
		verify(b, *(uint64_t *)got, (size_t)n);
		*(uint64_t *)got += (uint64_t)n;
	}
	CHECK(n == 0);
	return NULL;
}

/* waits_left leaves calls that wait: reads for bytes, then a write for space. This thread and others go on with the socket. */
static void waits_left(char **arg)
{
	static uint8_t b[CHUNK];
	static volatile uint64_t at;
	uint64_t got = 0;
	pthread_t t;
	struct sigaction act = {.sa_handler = leave};
	CHECK(sigaction(SIGALRM, &act, NULL) == 0);
	full_fd = dial(arg);
	answered(&full_fd);
	for (int i = 0; i < 10; i++) {
		if (sigsetjmp(out, 1) == 0) {
			after(2 * i + 1);
			read(full_fd, b, sizeof b);
			CHECK(!"read returned");
		}
		if (i % 2 == 0) /* the read has asked for more than comes: the socket shows that all the same */
			polled(&full_fd);
		usable(full_fd);
	}
	if (sigsetjmp(out, 1) == 0)
		for (;;) {
			make(b, at, sizeof b);
			after(500); /* long after the others have filled their memory, and wait */
			ssize_t n = write(full_fd, b, sizeof b);
			CHECK(n > 0);
			at += (uint64_t)n;
		}
	CHECK(pthread_create(&t, NULL, rest, &got) == 0 && pthread_join(t, NULL) == 0);
	CHECK(got >= at && got <= at + CHUNK);
	close(full_fd);
}

const struct part jumping[] = {
	{"waits-left", waits_left},
	{"jumps", jumps},
	{"stays", stays},
	{NULL, NULL},
};
