/*
 * isolation.c - programs that would leave the stack. The library comes with LD_PRELOAD: the loader ignores that for
 * privileged programs, static ones have no loader, Go makes system calls of its own, and an environment without the
 * variables (env -i) starts a program on the kernel's stack. exec and spawn report such a program, and refuse it with
 * --strict. execve by an instruction of the program's own is not seen: that is what --isolate is for.
 *
 * All of it runs in children of vfork, too: no memory is allocated, and files are read by system calls.
 */

#include "isolation.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define MOST_SCRIPTS 4 /* interpreters of interpreters: as the kernel */
#define MOST_HEADERS 64
#define MOST_NAMES 2048 /* bytes of the names of sections that are looked at */

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#define OWN_MACHINE EM_RISCV
#endif

enum leaves { STAYS, SETUID, CAPABLE, STATIC, FOREIGN, GO, LOADER, UNREADABLE, BARE, ELSEWHERE, LENIENT };

static const char *const causes[] = {
	[SETUID] = "it is setuid, and the loader ignores the library",
	[CAPABLE] = "it has capabilities, and the loader ignores the library",
	[STATIC] = "it is statically linked (start it by millrace exec --seccomp)",
	[FOREIGN] = "it is of another architecture",
	[GO] = "it is a Go program, which makes system calls without libc (start it by millrace exec --seccomp)",
	[LOADER] = "its loader is not that of glibc, as with musl (start it by millrace exec --seccomp)",
	[UNREADABLE] = "it cannot be read, so the library may not be loaded into it (permit this user to read it, or use --isolate)",
	[BARE] = "its environment has neither LD_PRELOAD nor MILLRACE_SHIM of the stack",
	[ELSEWHERE] = "its environment has another MILLRACE_SHIM (start it by millrace exec --socket, which changes the stack)",
	[LENIENT] = "its environment has no MILLRACE_SHIM_STRICT, so what it starts could leave the stack",
};

/* The path of the library, as LD_PRELOAD has it. */
static char own_path[PATH_MAX];

__attribute__((constructor)) static void find_self(void)
{
	Dl_info self;
	if (dladdr(own_path, &self) != 0 && self.dli_fname != NULL && strlen(self.dli_fname) < sizeof own_path)
		strcpy(own_path, self.dli_fname);
}

/* value_in returns the first value of a variable, as getenv(3) does, or the last one, which the loader takes. */
static const char *value_in(char *const env[], const char *name, bool last)
{
	size_t n = strlen(name);
	const char *found = NULL;
	for (char *const *e = env; e != NULL && *e != NULL && (last || found == NULL); e++)
		if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
			found = *e + n + 1;
	return found;
}

/* lists_library reports whether a list of LD_PRELOAD has the library: the loader separates names by spaces and colons. */
static bool lists_library(const char *list)
{
	size_t own = strlen(own_path);
	for (const char *at = list; *at != 0;) {
		size_t n = strcspn(at, ": ");
		if (own == 0 || (n == own && memcmp(at, own_path, n) == 0))
			return true;
		at += n + (at[n] != 0);
	}
	return false;
}

/*
 * look_at_environment looks whether a program with the environment finds the library and the stack. Programs that start others with a new
 * environment (env -i, cron) would otherwise talk to the network past the stack, with no sign of it.
 */
static enum leaves look_at_environment(char *const env[])
{
	const char *preload = value_in(env, "LD_PRELOAD", true), *stack = value_in(env, "MILLRACE_SHIM", false);
	const char *strict = value_in(env, "MILLRACE_SHIM_STRICT", false);
	if (preload == NULL || !lists_library(preload) || stack == NULL || stack[0] == 0)
		return BARE;
	if (strcmp(stack, settings()->path) != 0)
		return ELSEWHERE;
	return settings()->strict && (strict == NULL || strict[0] == 0) ? LENIENT : STAYS;
}

static bool read_at(int fd, void *to, size_t n, off_t at)
{
	return KERNEL(pread64, fd, to, n, at) == (long)n;
}

/* is_go reports whether a section is that of Go's linker. One that was taken away (strip) leaves .go.buildinfo, which is loaded. */
static bool is_go(int fd, const Elf64_Ehdr *head)
{
	Elf64_Shdr names, section;
	char text[MOST_NAMES];
	if (head->e_shnum == 0 || head->e_shentsize != sizeof section || head->e_shstrndx >= head->e_shnum)
		return false;
	if (!read_at(fd, &names, sizeof names, (off_t)(head->e_shoff + (uint64_t)head->e_shstrndx * sizeof names)))
		return false;
	size_t n = names.sh_size < sizeof text ? names.sh_size : sizeof text;
	if (!read_at(fd, text, n, (off_t)names.sh_offset))
		return false;
	for (size_t at = 0; at < n;) {
		size_t len = strnlen(text + at, n - at);
		if (len == strlen(".go.buildinfo") && memcmp(text + at, ".go.buildinfo", len) == 0)
			return true;
		at += len + 1;
	}
	return false;
}

/* is_glibc reports whether a loader is that of glibc by its name: the library needs glibc, and others ignore it or fail. */
static bool is_glibc(int fd, const Elf64_Phdr *p)
{
	char path[PATH_MAX];
	size_t n = p->p_filesz < sizeof path ? p->p_filesz : sizeof path;
	if (n == 0 || !read_at(fd, path, n, (off_t)p->p_offset))
		return false;
	path[n - 1] = 0;
	const char *name = strrchr(path, '/');
	name = name != NULL ? name + 1 : path;
	return strncmp(name, "ld-linux", strlen("ld-linux")) == 0;
}

static enum leaves look_at_elf(int fd, const Elf64_Ehdr *head)
{
	Elf64_Phdr p;
	bool loader = false;
	if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_machine != OWN_MACHINE)
		return FOREIGN;
	for (int i = 0; i < head->e_phnum && i < MOST_HEADERS && !loader; i++)
		loader = read_at(fd, &p, sizeof p, (off_t)(head->e_phoff + (uint64_t)i * sizeof p)) && p.p_type == PT_INTERP;
	if (!loader)
		return STATIC;
	if (!is_glibc(fd, &p))
		return LOADER;
	return is_go(fd, head) ? GO : STAYS;
}

/*
 * privileged is what makes the kernel start a program in secure mode (AT_SECURE, capabilities(7)): another user or group than
 * the real one, or capabilities of the file for another user than root. no_new_privs takes both away.
 */
static enum leaves privileged(const char *path, const struct stat *file)
{
	uid_t user = geteuid();
	gid_t group = getegid();
	char capabilities[64];
	if (KERNEL(prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return STAYS;
	if ((file->st_mode & S_ISUID) != 0)
		user = file->st_uid;
	if ((file->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
		group = file->st_gid;
	if (user != getuid() || group != getgid())
		return SETUID;
	if (getuid() != 0 && KERNEL(getxattr, path, "security.capability", capabilities, sizeof capabilities) > 0)
		return CAPABLE;
	return STAYS;
}

/* interpreter_of reads the program of a script's first line into path. */
static bool interpreter_of(const char *line, size_t n, char *path)
{
	size_t at = 2, from;
	while (at < n && (line[at] == ' ' || line[at] == '\t'))
		at++;
	for (from = at; at < n && strchr(" \t\n", line[at]) == NULL;)
		at++;
	if (at == from)
		return false;
	memcpy(path, line + from, at - from);
	path[at - from] = 0;
	return true;
}

static bool is_self(const struct stat *file, char *const argv[])
{
	const struct settings *known = settings();
	return known->self_inode != 0 && file->st_ino == known->self_inode && file->st_dev == known->self_device &&
	       argv != NULL && argv[0] != NULL && argv[1] != NULL && strcmp(argv[1], "exec") == 0;
}

/*
 * look_at_closed looks at a file that this user may execute and not read (mode 711). What it is stays unknown, but for its rights:
 * the loader of glibc would take the library in, a static program would not.
 */
static enum leaves look_at_closed(const char *path)
{
	struct stat file;
	if (errno != EACCES || stat(path, &file) != 0 || !S_ISREG(file.st_mode) || KERNEL(faccessat, AT_FDCWD, path, X_OK) != 0)
		return STAYS;
	enum leaves rights = privileged(path, &file);
	return rights != STAYS ? rights : UNREADABLE;
}

/* A file that is not there, or is no program, is the kernel's to refuse. */
static enum leaves look_at(const char *path, char *const argv[], int scripts)
{
	union {
		Elf64_Ehdr head;
		char line[256];
	} first;
	struct stat file;
	enum leaves result = STAYS;
	int fd = (int)KERNEL(openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return look_at_closed(path);
	long n = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) ? KERNEL(pread64, fd, &first, sizeof first, 0) : -1;
	bool script = n > 2 && first.line[0] == '#' && first.line[1] == '!';
	bool elf = n >= (long)sizeof first.head && memcmp(first.head.e_ident, ELFMAG, SELFMAG) == 0;
	if (elf && !is_self(&file, argv)) {
		result = privileged(path, &file);
		if (result == STAYS)
			result = look_at_elf(fd, &first.head);
	}
	KERNEL(close, fd);
	char interpreter[sizeof first.line + 1];
	if (script && scripts < MOST_SCRIPTS && interpreter_of(first.line, (size_t)n, interpreter))
		return look_at(interpreter, NULL, scripts + 1);
	return result;
}

/* search finds a program as execvp(3) does. */
static const char *search(const char *file, char *found, size_t size)
{
	const char *list = getenv("PATH");
	if (strchr(file, '/') != NULL)
		return file;
	for (const char *at = list != NULL ? list : "/bin:/usr/bin"; at != NULL;) {
		size_t n = strcspn(at, ":");
		int len = snprintf(found, size, "%.*s%s%s", (int)n, at, n != 0 ? "/" : "", file);
		if (len > 0 && (size_t)len < size && KERNEL(faccessat, AT_FDCWD, found, X_OK) == 0)
			return found;
		at = at[n] == ':' ? at + n + 1 : NULL;
	}
	return file;
}

/*
 * The check is advice, not a wall: the file may change between it and exec, and a program may exec by an instruction of its own. It finds
 * mistakes of operators. What must hold against a hostile program is done by the namespace of --isolate.
 */
static bool permit(enum leaves why, const char *path)
{
	char text[PATH_MAX + 256];
	if (why == STAYS)
		return true;
	bool strict = settings()->strict;
	snprintf(text, sizeof text, strict ? "--strict refuses %.100s: %s" : why == UNREADABLE ? "%.100s may leave the stack: %s" : "%.100s leaves the stack: %s",
		 path, causes[why]);
	report(text);
	if (strict)
		errno = EACCES;
	return !strict;
}

bool may_start(const char *path, char *const argv[], char *const env[])
{
	int saved = errno;
	if (!active() || path == NULL)
		return true;
	enum leaves why = look_at(path, argv, 0);
	if (why == STAYS) {
		struct stat file;
		if (stat(path, &file) == 0 && !is_self(&file, argv))
			why = look_at_environment(env);
	}
	errno = saved;
	return permit(why, path);
}

bool may_start_found(const char *file, char *const argv[], char *const env[])
{
	char found[PATH_MAX];
	return file == NULL || may_start(search(file, found, sizeof found), argv, env);
}

/* A path in a folder is looked at from there, by the folder's own name in /proc. */
bool may_start_in(int folder, const char *path, char *const argv[], char *const env[])
{
	char whole[PATH_MAX + 32];
	if (path == NULL)
		return true;
	if (path[0] == 0)
		return may_start_open(folder, argv, env);
	if (folder == AT_FDCWD || path[0] == '/')
		return may_start(path, argv, env);
	snprintf(whole, sizeof whole, "/proc/self/fd/%d/%s", folder, path);
	return may_start(whole, argv, env);
}

bool may_start_open(int fd, char *const argv[], char *const env[])
{
	char path[32];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return may_start(path, argv, env);
}
