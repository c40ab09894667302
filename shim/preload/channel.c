/*
 * channel.c - connections to the node's control socket.
 *
 * A process keeps up to CHANNELS of them, and a call takes one that is free: no reply waits for that of another
 * socket. A call that finds none free opens one for itself. The word of a channel says which process it belongs to,
 * and whether a call has it. After fork all words name the parent, so the child opens its own: no fork handler is
 * needed, and clone(2) without shared memory is served alike. A child of vfork has the words of its parent, which has its threads
 * at work on them: such a child opens a channel for each call.
 *
 * A program may close descriptors that are not its own (close_range, daemon) and then get the number of a channel for
 * a file. The kernel's cookie of the socket shows that.
 */

#include "library.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/time.h>

#define CHANNELS 8
#define LOWEST_DESCRIPTOR 512 /* leaves the small numbers to programs, and those of select(2) */
#define REPLY_SECONDS 30      /* the node answers at once, unless it hangs */

struct channel {
	int fd;
	uint64_t cookie;
};

static struct {
	_Atomic uint64_t word; /* process << 1 | taken; 0: never used */
	struct channel open;
} channels[CHANNELS];

uint64_t cookie_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof cookie;
	return KERNEL(getsockopt, fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) == 0 ? cookie : 0;
}

static bool is_open(const struct channel *c)
{
	return c->cookie != 0 && cookie_of(c->fd) == c->cookie;
}

static void hang_up(struct channel *c)
{
	if (is_open(c))
		KERNEL(close, c->fd);
	c->cookie = 0;
}

/*
 * The node may be root's, the program's own user's, or that of the user whom millrace exec has checked. The path may be in a directory
 * that others write: whoever listened there could otherwise read and answer all traffic.
 */
static bool trusted(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof peer;
	if (KERNEL(getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
		return false;
	const struct settings *known = settings();
	return peer.uid == 0 || peer.uid == geteuid() || (known->has_uid && known->uid == peer.uid);
}

static int send_request(int fd, struct shim_request *q, int passed)
{
	struct iovec part = {q, sizeof *q};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof passed)] = {0};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
	if (passed >= 0) {
		m.msg_control = control;
		m.msg_controllen = sizeof control;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof passed);
		memcpy(CMSG_DATA(c), &passed, sizeof passed);
	}
	for (;;) {
		long n = KERNEL(sendmsg, fd, &m, MSG_NOSIGNAL);
		if (n >= 0 || errno != EINTR)
			return n == sizeof *q ? 0 : -1;
	}
}

/* take_descriptor keeps the descriptor that came with a message in memory, or closes it where nobody asks for it. */
static void take_descriptor(struct msghdr *m, int *memory)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);
	int got;
	if (memory != NULL && (m->msg_flags & MSG_CTRUNC) != 0)
		*memory = NO_NUMBER;
	if (c == NULL || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(sizeof got))
		return;
	memcpy(&got, CMSG_DATA(c), sizeof got);
	if (memory != NULL)
		*memory = got;
	else
		KERNEL(close, got);
}

static int receive_reply(int fd, const struct shim_request *q, struct shim_reply *reply, int *memory)
{
	for (;;) {
		struct iovec part = {reply, sizeof *reply};
		_Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))];
		struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
		long n = KERNEL(recvmsg, fd, &m, MSG_CMSG_CLOEXEC);
		if (n < 0 && errno == EINTR)
			continue;
		if (n > 0)
			take_descriptor(&m, memory);
		if (n == 0)
			errno = EPIPE;
		if (n != sizeof *reply)
			return -1;
		if (reply->id == q->id && reply->op == q->op)
			return 0;
	}
}

static int exchange(struct channel *c, struct shim_request *q, int passed, struct shim_reply *reply, int *memory)
{
	static _Atomic uint32_t last;
	q->id = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
	q->version = SHIM_VERSION;
	if (send_request(c->fd, q, passed) == 0 && receive_reply(c->fd, q, reply, memory) == 0)
		return 0;
	hang_up(c);
	return -1;
}

/*
 * refusal takes the reply of a node that has closed the channel before it read HELLO, because the user has too many. The first
 * call may say once more that the channel was reset.
 */
static bool refusal(int fd, struct shim_reply *reply)
{
	for (int i = 0; i < 2; i++)
		if (KERNEL(recvfrom, fd, reply, sizeof *reply, MSG_DONTWAIT, NULL, NULL) == sizeof *reply)
			return reply->op == SHIM_HELLO && reply->id == 0;
	return false;
}

static void append(struct shim_request *q, const char *text, size_t n)
{
	size_t space = sizeof q->value - q->len;
	n = n < space ? n : space;
	memcpy(q->value + q->len, text, n);
	q->len += (uint32_t)n;
}

/* report_limit says that the node has refused something. A process that is at a limit of its own learns it by errno alone, as ever. */
static void report_limit(int32_t error)
{
	if (error == EMFILE || error == ENFILE)
		report_once("a limit of the node is reached: shim.sockets or shim.descriptors of its configuration (millrace net stats)");
}

/*
 * Both sides compare what they were compiled with. The token is what millrace exec was given: it lets in a process that
 * has changed its user since.
 */
static int hello(struct channel *c)
{
	struct shim_request q = {.op = SHIM_HELLO, .arg = sizeof(struct shim_request)};
	struct shim_reply reply;
	const char *token = settings()->token;
	append(&q, program_invocation_short_name, strnlen(program_invocation_short_name, 64) + 1);
	q.value[q.len - 1] = 0;
	append(&q, token, strlen(token));
	q.version = SHIM_VERSION; /* and the number is 0 */
	if (send_request(c->fd, &q, -1) != 0 || receive_reply(c->fd, &q, &reply, NULL) != 0) {
		int cause = errno;
		if (!refusal(c->fd, &reply)) {
			hang_up(c);
			errno = cause;
			return -1;
		}
	}
	if (reply.error == 0 && reply.version == SHIM_VERSION)
		return 0;
	if (reply.version != SHIM_VERSION)
		report_once("the node is of another version (run the program with its own millrace exec)");
	report_limit(reply.error);
	hang_up(c);
	errno = reply.error != 0 ? reply.error : EPROTO;
	return -1;
}

/*
 * keep_off moves a descriptor of the library to a number that programs do not use. open(2) returns the lowest free number, and programs rely on it: a
 * daemon closes 0 to 2 and opens its streams again, and select(2) takes no number from 1024 on.
 */
int keep_off(int fd)
{
	int high = (int)KERNEL(fcntl, fd, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
	if (high < 0)
		return fd;
	KERNEL(close, fd);
	return high;
}

/*
 * connect_node connects to the node by its path or, where a program that has changed its root directory does not find that, by
 * the abstract name or in the folder of before. Who listens there is checked in any case.
 */
static long connect_node(int fd)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	size_t n = strlen(settings()->path);
	memcpy(to.sun_path, settings()->path, n);
	if (KERNEL(connect, fd, &to, sizeof to) == 0)
		return 0;
	if ((errno != ENOENT && errno != ENOTDIR && errno != EACCES) || n >= sizeof to.sun_path)
		return -1;
	to.sun_path[0] = 0;
	memcpy(to.sun_path + 1, settings()->path, n);
	if (KERNEL(connect, fd, &to, offsetof(struct sockaddr_un, sun_path) + 1 + n) == 0)
		return 0;
	return errno == ECONNREFUSED ? connect_in_folder(fd) : -1; /* there is no such name */
}

static int dial(struct channel *c)
{
	c->cookie = 0;
	int fd = (int)KERNEL(socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	struct timeval limit = {.tv_sec = REPLY_SECONDS};
	KERNEL(setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	if (connect_node(fd) != 0 || !trusted(fd)) {
		int cause = errno == 0 ? EPERM : errno;
		KERNEL(close, fd);
		errno = cause;
		return -1;
	}
	c->fd = keep_off(fd);
	c->cookie = cookie_of(c->fd);
	return hello(c);
}

/*
 * take returns the number of a channel that is free, or -1. The process is part of the word that is compared, so that a child of fork never
 * uses a channel of its parent: both would read replies of one stream, and each could get the other's.
 */
static int take(uint64_t process)
{
	for (int i = 0; i < CHANNELS; i++) {
		uint64_t word = atomic_load_explicit(&channels[i].word, memory_order_relaxed);
		if (word == (process << 1 | 1))
			continue;
		if (!atomic_compare_exchange_strong_explicit(&channels[i].word, &word, process << 1 | 1,
							     memory_order_acquire, memory_order_relaxed))
			continue;
		if (word >> 1 != process)
			hang_up(&channels[i].open); /* it was copied by fork */
		return i;
	}
	return -1;
}

static void give_back(int i, uint64_t process)
{
	atomic_store_explicit(&channels[i].word, process << 1, memory_order_release);
}

/* on does the exchange on a channel. A node that was started again has closed it: that shows once, and costs one more try. */
static int on(struct channel *c, struct shim_request *q, int passed, struct shim_reply *reply, int *memory)
{
	bool used = is_open(c);
	if (!used && dial(c) != 0)
		return -1;
	if (exchange(c, q, passed, reply, memory) == 0)
		return 0;
	bool closed = errno == EPIPE || errno == ECONNRESET;
	if (!used || !closed || dial(c) != 0)
		return -1;
	return exchange(c, q, passed, reply, memory);
}

/* cause_of_silence says why the node has not answered, and returns the errno for the program. */
static int cause_of_silence(int cause)
{
	switch (cause) {
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case ENOBUFS:
		return cause; /* the process has no descriptor for a channel, or report_limit has said why */
	case EACCES:
	case EPERM:
		report_once("the user of this process may not use the stack (shim.groups and shim.everyone of its configuration)");
		return EACCES;
	case EAFNOSUPPORT:
		report_once("this process may not open AF_UNIX sockets (RestrictAddressFamilies or another sandbox): permit them");
		return cause;
	}
	report_once("the node does not answer: is millrace stack up still running?");
	return ENETDOWN;
}

/* try_request is request without a line on standard error, and with the errno of the call that has failed. */
static int try_request(struct shim_request *q, int fd, struct shim_reply *reply, int *memory)
{
	uint64_t process = (uint64_t)getpid();
	int i = own_memory() ? take(process) : -1, result;
	if (i >= 0) {
		result = on(&channels[i].open, q, fd, reply, memory);
		give_back(i, process);
	} else {
		struct channel own = {0};
		result = on(&own, q, fd, reply, memory);
		hang_up(&own);
	}
	return result;
}

int request(struct shim_request *q, int fd, struct shim_reply *reply, int *memory)
{
	int saved = errno;
	errno = 0;
	if (try_request(q, fd, reply, memory) == 0) {
		errno = saved;
		return 0;
	}
	errno = cause_of_silence(errno);
	return -1;
}

void request_quietly(struct shim_request *q)
{
	uint64_t process = (uint64_t)getpid();
	struct shim_reply reply;
	int saved = errno;
	bool known = false;
	for (int i = 0; i < CHANNELS && !known; i++)
		known = atomic_load_explicit(&channels[i].word, memory_order_relaxed) >> 1 == process;
	if (known)
		try_request(q, -1, &reply, NULL);
	errno = saved;
}

/*
 * chroot(2) hides the node's path, and in another network namespace the abstract name is not there either: so the process opens the folder of
 * the socket before, for itself and what it forks later, and gets a channel, if it has none. Its own filters may forbid that later.
 */
INTERPOSED int chroot(const char *path)
{
	uint64_t process = (uint64_t)getpid();
	int saved = errno, i = active() && own_memory() ? take(process) : -1;
	if (i >= 0) {
		if (!is_open(&channels[i].open))
			dial(&channels[i].open); /* a process without sockets of the stack may be one that the node does not serve */
		give_back(i, process);
		keep_folder();
	}
	errno = saved;
	return (int)KERNEL(chroot, path);
}

int ask(struct shim_request *q, int fd, struct shim_reply *reply)
{
	return ask_memory(q, fd, reply, NULL);
}

int ask_memory(struct shim_request *q, int fd, struct shim_reply *reply, int *memory)
{
	if (request(q, fd, reply, memory) != 0)
		return -1;
	if (reply->error == 0)
		return 0;
	report_limit(reply->error);
	errno = reply->error;
	return -1;
}
