/*
 * folder.c - the folder of the node's socket, for processes that have changed their root directory. Neither the path of the socket is there
 * nor, in another network namespace, its abstract name: the folder is opened before, and the children of the process have it, too.
 *
 * connect(2) knows no descriptor of a folder, only the current directory, which all threads of a process share. So a thread with a current
 * directory of its own connects, while the caller waits for it. It is no child, whose end the program would see.
 */

#include "library.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

#define STACK 16384 /* bytes: two system calls need less */

static struct {
	int fd;
	dev_t device;
	ino_t inode; /* the program may have closed the descriptor, and have another file under its number; 0 is none */
} folder;

static const char *name_of_socket(void)
{
	const char *slash = strrchr(settings()->path, '/');
	return slash == NULL || slash == settings()->path ? NULL : slash + 1;
}

static bool is_folder(int fd)
{
	struct stat st;
	return folder.inode != 0 && fstat(fd, &st) == 0 && st.st_dev == folder.device && st.st_ino == folder.inode;
}

void keep_folder(void)
{
	char path[sizeof settings()->path];
	const char *name = name_of_socket();
	struct stat st;
	int saved = errno;
	if (name == NULL || is_folder(folder.fd))
		return;
	size_t n = (size_t)(name - settings()->path) - 1;
	memcpy(path, settings()->path, n);
	path[n] = 0;
	int fd = (int)KERNEL(openat, AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0) { /* a second chroot(2) does not find it, and keeps the first */
		folder.fd = keep_off(fd);
		folder.device = st.st_dev;
		folder.inode = st.st_ino;
	}
	errno = saved;
}

struct connection {
	int fd, cause;
	struct sockaddr_un to;
};

/* The thread has the caller's errno, which waits meanwhile. */
static int connect_there(void *arg)
{
	struct connection *c = arg;
	c->cause = 0;
	if (KERNEL(fchdir, folder.fd) != 0 || KERNEL(connect, c->fd, &c->to, sizeof c->to) != 0)
		c->cause = errno;
	KERNEL(exit, 0); /* of the thread alone */
	return 0;
}

long connect_in_folder(int fd)
{
	_Alignas(16) char stack[STACK];
	uint64_t all = ~UINT64_C(0), before;
	const char *name = name_of_socket();
	struct connection c = {fd, ENOENT, {.sun_family = AF_UNIX}};
	if (name != NULL && is_folder(folder.fd)) {
		memcpy(c.to.sun_path, name, strlen(name));
		KERNEL(rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all); /* no handler runs on such a stack */
		const int flags = CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
		if (clone(connect_there, stack + sizeof stack, flags, &c) < 0)
			c.cause = errno;
		KERNEL(rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
	}
	errno = c.cause;
	return c.cause == 0 ? 0 : -1;
}
