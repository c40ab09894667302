/* calls.c - results of single calls, right and wrong ones. */
#include "client.h"

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
	close(fd);
	/* Another socket: this one might still get the error of the first datagram, which no socket receives. */
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	CHECK(send(fd, big, 65508, 0) == -1 && errno == EMSGSIZE);
	CHECK(send(fd, big, 65507, 0) == 65507);
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

/* exchange writes to one number of a socket whose peer echoes, and reads from another. */
static void exchange(int to, int from)
{
	char b[9];
	CHECK(write(to, "abcdef", 6) == 6);
	await_unread(from, 6);
	CHECK(read(from, b, 2) == 2 && read(to, b + 2, 4) == 4 && memcmp(b, "abcdef", 6) == 0);
}

/* duplicate makes a second number of fd, from 256 on: beyond the tables of a library that was built for this. */
static int duplicate(int fd, int how)
{
	static int last = 400;
	if (how == 0)
		return dup2(fd, ++last);
	if (how == 1)
		return fcntl(fd, F_DUPFD, 300);
	int other = dup(fd);
	while (other >= 0 && other < 256)
		other = dup(other);
	return other;
}

/* beyond uses numbers that have no entry in the library's tables. */
static void beyond(char **arg)
{
	int how = atoi(arg[2]), fd = dial(arg);
	exchange(fd, fd);
	int other = duplicate(fd, how);
	CHECK(other >= 256);
	exchange(fd, other);
	exchange(other, fd);
	exchange(other, other);

	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	char b[9];
	int udp = socket(AF_INET, SOCK_DGRAM, 0), to = socket(AF_INET, SOCK_DGRAM, 0), more = duplicate(udp, how);
	CHECK(udp >= 0 && to >= 0 && more >= 256 && bind(udp, (struct sockaddr *)&at, len) == 0);
	CHECK(getsockname(udp, (struct sockaddr *)&at, &len) == 0 && sendto(to, "abc", 3, 0, (struct sockaddr *)&at, len) == 3);
	CHECK(read(more, b, sizeof b) == 3 && memcmp(b, "abc", 3) == 0); /* and not the header of the datagram */
	CHECK(close(fd) == 0);
	exchange(other, other);
	end(other);
}

const struct part calls[] = {
	{"beyond", beyond},
	{"files", files},
	{"resets", resets},
	{"numbers", numbers},
	{"edges", edges},
	{"errors", errors},
	{NULL, NULL},
};
