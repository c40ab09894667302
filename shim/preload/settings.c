/*
 * settings.c - what millrace exec has put in the environment. Servers clear or overwrite it (nginx in its workers, and
 * whatever changes its title), so it is copied when the library is loaded, or by a call before that.
 */

#include "library.h"

#include <fcntl.h>
#include <stdlib.h>

static struct settings copied;
static bool loaded;

/* next_byte returns a byte of a file, -1 at its end. */
static int next_byte(int fd)
{
	unsigned char b;
	return KERNEL(read, fd, &b, 1) == 1 ? b : -1;
}

/*
 * variable_of_kernel is getenv(3) for calls before libc's constructor, as functions of .preinit_array make them. One byte at
 * a time: it is rare.
 */
static const char *variable_of_kernel(const char *name, char *buffer, size_t size)
{
	size_t n = strlen(name), at = 0;
	bool found = false;
	int c, fd = (int)KERNEL(openat, AT_FDCWD, "/proc/self/environ", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	while (!found && (c = next_byte(fd)) >= 0) {
		if (at < n && c == name[at]) {
			at++;
			continue;
		}
		found = at == n && c == '=';
		while (!found && c > 0) /* to the end of another variable */
			c = next_byte(fd);
		at = 0;
	}
	while (found && at < size && (c = next_byte(fd)) > 0)
		buffer[at++] = (char)c;
	KERNEL(close, fd);
	if (!found || at == size)
		return NULL;
	buffer[at] = 0;
	return buffer;
}

/* variable returns a variable of the environment, in buffer where libc does not have it yet. */
static const char *variable(const char *name, char *buffer, size_t size)
{
	return environ != NULL ? getenv(name) : variable_of_kernel(name, buffer, size);
}

static void copy(char *to, size_t size, const char *name)
{
	char buffer[sizeof copied];
	const char *from = variable(name, buffer, sizeof buffer);
	if (from != NULL && strlen(from) < size)
		memcpy(to, from, strlen(from) + 1);
}

/* The loader calls it while the process has one thread. */
__attribute__((constructor)) static void load(void)
{
	char buffer[32], number[64];
	if (loaded)
		return;
	loaded = true;
	const char *uid = variable("MILLRACE_SHIM_UID", buffer, sizeof buffer);
	copy(copied.path, sizeof copied.path, "MILLRACE_SHIM");
	copy(copied.token, sizeof copied.token, "MILLRACE_SHIM_TOKEN");
	const char *rings = getenv("MILLRACE_SHIM_RINGS"), *busy = getenv("MILLRACE_SHIM_BUSY_POLL");
	const char *strict = variable("MILLRACE_SHIM_STRICT", number, sizeof number);
	const char *loss = variable("MILLRACE_SHIM_ON_NODE_LOSS", buffer, sizeof buffer);
	copied.ends_with_node = loss != NULL && strcmp(loss, "end") == 0;
	copied.rebinds = loss != NULL && strcmp(loss, "rebind") == 0;
	const char *first = variable("MILLRACE_SHIM_FIRST", buffer, sizeof buffer);
	copied.first = first != NULL ? (pid_t)strtol(first, NULL, 10) : 0;
	const char *interfaces = variable("MILLRACE_SHIM_INTERFACES", buffer, sizeof buffer);
	copied.kernel_interfaces = interfaces != NULL && strcmp(interfaces, "kernel") == 0;
	copied.strict = strict != NULL && strict[0] != 0;
	const char *self = variable("MILLRACE_SHIM_SELF", number, sizeof number);
	char *inode = NULL;
	copied.self_device = self != NULL ? (dev_t)strtoull(self, &inode, 10) : 0;
	copied.self_inode = inode != NULL && *inode == ':' ? (ino_t)strtoull(inode + 1, NULL, 10) : 0;
	copied.rings = rings != NULL && rings[0] != 0;
	copied.busy_poll = busy != NULL ? strtoull(busy, NULL, 10) : 0;
	copied.has_uid = uid != NULL;
	copied.uid = uid != NULL ? (uid_t)strtoul(uid, NULL, 10) : 0;
}

const struct settings *settings(void)
{
	load();
	return &copied;
}

bool active(void)
{
	return settings()->path[0] != 0;
}
