/* leaving.c - transfers, during which the socket gets another number, another process or another program. */
#include "client.h"

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

void transfer(char **arg)
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

const struct part leaving[] = {
	{"echo", echo},
	{"transfer", transfer},
	{"moving", moving},
	{"exec", exec_reader},
	{"unread", unread},
	{"ended", ended},
	{"inherited", inherited},
	{NULL, NULL},
};
