/* pairs.c - both ends of connections between two programs of a stack. */
#include "client.h"

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

/* server accepts connections at an address, forks for each, and echoes. */
static void server(char **arg)
{
	int l = listen_at(arg);
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
	signals_come = true;
	transfer(arg);
}

const struct part pairs[] = {
	{"server", server},
	{"victim", victim},
	{"rude", rude},
	{"lazy", lazy},
	{"trips", trips},
	{"chatter", chatter},
	{"heir", heir},
	{"handover", handover},
	{"giver", giver},
	{"orphan", orphan},
	{"storm", storm},
	{NULL, NULL},
};
