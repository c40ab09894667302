package main

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// loadable returns why the library cannot be loaded into the program.
func (f *execFlags) loadable(c *console, path string, args []string) error {
	if isSelf(path) && len(args) > 1 && args[1] == "exec" { // the inner one checks what it loads the library into
		return nil
	}
	err := loadable(path)
	if errors.Is(err, errUnreadable) && !f.strict {
		c.complain(err)
		return nil
	}
	return err
}

// errUnreadable is that what a program is stays unknown: a user may execute a file with mode 711, and not read it.
var errUnreadable = errors.New("it cannot be read, so the library may not be loaded into it (permit this user to read it, or use --isolate)")

// loadable returns why the library cannot be loaded into a program, or into the interpreter of a script.
func loadable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return notStarted{err, exitCannotRun}
	}
	if privileged(info) {
		return notStarted{fmt.Errorf("%s is setuid or setgid: the loader ignores LD_PRELOAD, so it cannot use the host", path), exitPrivileged}
	}
	if capable(path) {
		return notStarted{fmt.Errorf("%s has capabilities: the loader ignores LD_PRELOAD, so it cannot use the host (run millrace exec as root, or take them away by setcap -r)", path), exitPrivileged}
	}
	if script := interpreter(path); script != "" {
		return loadable(script)
	}
	if err := rightMachine(path); err != nil {
		return err
	}
	f, err := elf.Open(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return notStarted{fmt.Errorf("%s may leave the stack: %w", path, errUnreadable), exitArchitecture}
	case err != nil:
		return nil // the kernel says what it is
	}
	defer f.Close()
	switch loader := loaderOf(f); {
	case loader == "":
		return notStarted{fmt.Errorf("%s is statically linked: a library cannot be loaded into it (use --seccomp)", path), exitArchitecture}
	case !strings.HasPrefix(filepath.Base(loader), "ld-linux"):
		return notStarted{fmt.Errorf("%s has the loader %s, and the library needs that of glibc (use --seccomp)", path, loader), exitArchitecture}
	}
	if f.Section(".go.buildinfo") != nil { // with cgo it loads libc, but its package net makes system calls of its own
		return notStarted{fmt.Errorf("%s is a Go program, which makes system calls without libc: the library would not see them (use --seccomp)", path), exitArchitecture}
	}
	return nil
}

// loaderOf returns the loader that a program names, "" if it is statically linked.
func loaderOf(f *elf.File) string {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(p.Open(), unix.PathMax))
		if name, _, _ := strings.Cut(string(text), "\x00"); err == nil {
			return name
		}
	}
	return ""
}

// privileged reports whether a program gets another user or group when it is executed.
func privileged(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (info.Mode()&fs.ModeSetuid != 0 && int(st.Uid) != os.Geteuid() || info.Mode()&fs.ModeSetgid != 0 && int(st.Gid) != os.Getegid())
}

// capable reports whether a program gets capabilities when this user executes it. Root has them already, and its programs are not
// executed in the loader's secure mode (capabilities(7)).
func capable(path string) bool {
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0 && os.Getuid() != 0
}

// rightMachine returns an error if a program is of another architecture. What is no ELF file at all is left to the kernel.
func rightMachine(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if want := machines[runtime.GOARCH]; f.Machine != want || f.Class != elf.ELFCLASS64 {
		return notStarted{fmt.Errorf("%s is for %s, and millrace for %s", path, f.Machine, want), exitArchitecture}
	}
	return nil
}

// machines are the architectures of ELF.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV}

// interpreter returns the program that runs a script, "" if path is none.
func interpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadString('\n')
	rest, ok := strings.CutPrefix(line, "#!")
	words := strings.Fields(rest)
	if !ok || len(words) == 0 {
		return ""
	}
	return words[0]
}
