/* load.c - many calls: with memory that changes meanwhile, for as long as is asked, or to see what each costs. */
#include "calls.h"

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
void hostile(long seconds)
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

/* sockets opens n sockets, each of which has to be one. */
void sockets(int n)
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
void cost(int n)
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
