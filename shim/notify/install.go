package notify

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Why a program cannot be supervised.
var (
	// ErrOldKernel is that the kernel lacks a part of seccomp user notification.
	ErrOldKernel = errors.New("the kernel lacks seccomp user notification (Linux 5.19 or later has it, with CONFIG_SECCOMP_FILTER)")

	// ErrSupervised is that the task has a supervisor already: the kernel permits one.
	ErrSupervised = errors.New("this program runs under a supervisor of system calls already, and the kernel permits one")

	// ErrNotPermitted is that a policy of the machine forbids it.
	ErrNotPermitted = errors.New("a policy of this machine forbids it (AppArmor, SELinux, Yama, or the seccomp filter of a container)")
)

// Install puts the filter on the calling thread, which its children and what it executes inherit, and returns the
// descriptor for a Supervisor (close-on-exec). The caller has locked its goroutine to the thread. Calls of the thread that the filter
// chooses wait from now on. Without CAP_SYS_ADMIN it sets no_new_privs, with which setuid programs get no rights.
func Install() (int, error) {
	// A call that a supervisor has received can then be ended by SIGKILL alone, so that no answer is lost.
	return install(filter(), unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
}

// Confine puts a filter on the calling thread, which its children and what it executes inherit, with which no call makes a
// socket of the kernel's network stack: EACCES. It needs no Supervisor. The caller has locked its goroutine to the thread.
// Without CAP_SYS_ADMIN it sets no_new_privs, with which setuid programs get no rights.
func Confine() error {
	_, err := install(confinement(), 0)
	return err
}

// install installs a filter and returns its descriptor, where flags ask for one.
func install(program []bpf.Instruction, flags uintptr) (int, error) {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return -1, err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	fd, err := seccomp(code, flags)
	if err == unix.EACCES {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return -1, os.NewSyscallError("prctl", err)
		}
		fd, err = seccomp(code, flags)
	}
	switch err {
	case nil:
		return fd, nil
	case unix.EBUSY:
		return -1, ErrSupervised
	case unix.EINVAL, unix.ENOSYS:
		return -1, ErrOldKernel
	case unix.EPERM, unix.EACCES:
		return -1, ErrNotPermitted
	}
	return -1, os.NewSyscallError("seccomp", err)
}

// seccomp is seccomp(2) with a filter.
func seccomp(code []unix.SockFilter, flags uintptr) (int, error) {
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// Privileged reports whether Install works without no_new_privs.
func Privileged() bool {
	var data [2]unix.CapUserData
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&head, &data[0]); err != nil {
		return false
	}
	return data[unix.CAP_SYS_ADMIN/32].Effective&(1<<(unix.CAP_SYS_ADMIN%32)) != 0
}

// Probe makes one round trip on the thread of Install, and fails if the Supervisor cannot do what it has to: it opens a
// socket of the stack, which comes by another process, and asks for its name, which that process writes here.
func Probe() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return probeError("socket", err)
	}
	defer unix.Close(fd)
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return probeError("getsockname", err)
	}
	if _, ok := sa.(*unix.SockaddrInet4); !ok {
		return fmt.Errorf("the call went to the kernel: %w", ErrNotPermitted)
	}
	return nil
}

func probeError(call string, err error) error {
	switch err {
	case unix.EPERM, unix.EACCES:
		return fmt.Errorf("%s: %w", call, ErrNotPermitted)
	case unix.EINVAL:
		return fmt.Errorf("%s: %w", call, ErrOldKernel)
	}
	return fmt.Errorf("the supervisor does not answer: %w", os.NewSyscallError(call, err))
}
