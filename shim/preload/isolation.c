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

enum leaves { STAYS, SETUID, CAPABLE, STATIC, FOREIGN, GO, BARE };

static const char *const causes[] = {
	[SETUID] = "it is setuid, and the loader ignores the library",
	[CAPABLE] = "it has capabilities, and the loader ignores the library",
	[STATIC] = "it is statically linked (start it by millrace exec --seccomp)",
	[FOREIGN] = "it is of another architecture",
	[GO] = "it is a Go program, which makes system calls without libc (start it by millrace exec --seccomp)",
	[BARE] = "its environment has neither LD_PRELOAD nor MILLRACE_SHIM of the stack",
};

/* The path of the library, as LD_PRELOAD has it. */
static char own_path[PATH_MAX];

__attribute__((constructor)) static void find_self(void)
{
	Dl_info self;
	if (dladdr(own_path, &self) != 0 && self.dli_fname != NULL && strlen(self.dli_fname) < sizeof own_path)
		strcpy(own_path, self.dli_fname);
}

static const char *value_in(char *const env[], const char *name)
{
	size_t n = strlen(name);
	for (char *const *e = env; e != NULL && *e != NULL; e++)
		if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
			return *e + n + 1;
	return NULL;
}

/*
 * carries reports whether a program with the environment finds the library and the stack. Programs that start others with a new environment
 * (env -i, cron) would otherwise talk to the network past the stack, with no sign of it.
 */
static bool carries(char *const env[])
{
	const char *preload = value_in(env, "LD_PRELOAD"), *stack = value_in(env, "MILLRACE_SHIM");
	return preload != NULL && stack != NULL && stack[0] != 0 && (own_path[0] == 0 || strstr(preload, own_path) != NULL);
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
	return is_go(fd, head) ? GO : STAYS;
}

/*
 * privileged is what makes the kernel start a program in secure mode (AT_SECURE, capabilities(7)): another user or group than
 * the real one, or capabilities of the file for another user than root. no_new_privs takes both away.
 */
static enum leaves privileged(int fd, const struct stat *file)
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
	if (getuid() != 0 && KERNEL(fgetxattr, fd, "security.capability", capabilities, sizeof capabilities) > 0)
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

/* A file that cannot be read, or is no program, is the kernel's to refuse. */
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
		return STAYS;
	long n = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) ? KERNEL(pread64, fd, &first, sizeof first, 0) : -1;
	bool script = n > 2 && first.line[0] == '#' && first.line[1] == '!';
	bool elf = n >= (long)sizeof first.head && memcmp(first.head.e_ident, ELFMAG, SELFMAG) == 0;
	if (elf && !is_self(&file, argv)) {
		result = privileged(fd, &file);
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
	snprintf(text, sizeof text, strict ? "--strict refuses %.100s: %s" : "%.100s leaves the stack: %s", path, causes[why]);
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
	if (why == STAYS && !carries(env)) {
		struct stat file;
		if (stat(path, &file) == 0 && !is_self(&file, argv))
			why = BARE;
	}
	errno = saved;
	return permit(why, path);
}

bool may_start_found(const char *file, char *const argv[], char *const env[])
{
	char found[PATH_MAX];
	return file == NULL || may_start(search(file, found, sizeof found), argv, env);
}

bool may_start_open(int fd, char *const argv[], char *const env[])
{
	char path[32];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return may_start(path, argv, env);
}
