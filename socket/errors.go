package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
)

// errnos are the error numbers of Linux for the errors of tcp and udp. Programs compare errors of package net
// with these numbers (errors.Is), so that each error needs the one that the kernel would return.
var errnos = map[error]syscall.Errno{
	tcp.ErrRefused:     syscall.ECONNREFUSED,
	tcp.ErrReset:       syscall.ECONNRESET,
	tcp.ErrAborted:     syscall.ECONNABORTED,
	tcp.ErrTimeout:     syscall.ETIMEDOUT,
	tcp.ErrUnreachable: syscall.ENETUNREACH,
	tcp.ErrHost:        syscall.EHOSTUNREACH,
	tcp.ErrAuth:        syscall.EKEYREJECTED,
	tcp.ErrNoPort:      syscall.EADDRNOTAVAIL,
	tcp.ErrInUse:       syscall.EADDRINUSE,
	tcp.ErrConnected:   syscall.EADDRNOTAVAIL,
	tcp.ErrTooMany:     syscall.ENFILE,
	tcp.ErrMemory:      syscall.ENOBUFS,
	tcp.ErrBadOption:   syscall.EINVAL,
	tcp.ErrNoUrgent:    syscall.EINVAL,
	tcp.ErrUrgentLater: syscall.EAGAIN,
	tcp.ErrCongestion:  syscall.ENOENT,

	udp.ErrInUse:        syscall.EADDRINUSE,
	udp.ErrNoPort:       syscall.EADDRNOTAVAIL,
	udp.ErrTooMany:      syscall.ENFILE,
	udp.ErrAddress:      syscall.EINVAL,
	udp.ErrRefused:      syscall.ECONNREFUSED,
	udp.ErrProhibited:   syscall.EHOSTUNREACH,
	udp.ErrProtocol:     syscall.ENOPROTOOPT,
	udp.ErrNotMulticast: syscall.EINVAL,
	udp.ErrNotMember:    syscall.EADDRNOTAVAIL,
	udp.ErrUnreachable:  syscall.ENETUNREACH,
	udp.ErrHost:         syscall.EHOSTUNREACH,
	udp.ErrTooLong:      syscall.EMSGSIZE,
	udp.ErrSteering:     syscall.EINVAL,
}

// Errno returns the error number of Linux for an error of package tcp or udp; false for other errors.
func Errno(err error) (syscall.Errno, bool) {
	n, ok := errnos[err]
	return n, ok
}

// errnoError returns err as a failed system call on a kernel socket would.
func errnoError(call string, err error) error {
	n, ok := errnos[err]
	if !ok {
		n, ok = err.(syscall.Errno)
	}
	if ok {
		return os.NewSyscallError(call, n)
	}
	return err
}

// connectError returns err as that of the system call that would fail on a kernel socket: an address in use is
// found by bind(2), the rest by connect(2).
func connectError(err error) error {
	if err == tcp.ErrInUse {
		return errnoError("bind", err)
	}
	return errnoError("connect", err)
}

// sendError returns the error of a datagram that the host did not send. It is nil for losses that the kernel
// does not report either, such as those of a neighbour that does not answer.
func sendError(v packet.Verdict) error {
	switch v {
	case packet.DropNoRoute:
		return os.NewSyscallError("sendmsg", syscall.ENETUNREACH)
	case packet.DropTooBig:
		return os.NewSyscallError("sendmsg", syscall.EMSGSIZE)
	case packet.DropDenied:
		return os.NewSyscallError("sendmsg", syscall.EACCES)
	case packet.DropMalformed:
		return os.NewSyscallError("sendmsg", syscall.EINVAL)
	case packet.DropLinkDown:
		return os.NewSyscallError("sendmsg", syscall.ENETDOWN)
	}
	return nil
}

// canceled and timedOut are the errors of package net for contexts that have ended.
type canceled struct{}

func (canceled) Error() string        { return "operation was canceled" }
func (canceled) Is(target error) bool { return target == context.Canceled }

type timedOut struct{}

func (timedOut) Error() string   { return "i/o timeout" }
func (timedOut) Timeout() bool   { return true }
func (timedOut) Temporary() bool { return true }
func (timedOut) Is(target error) bool {
	return target == context.DeadlineExceeded || target == os.ErrDeadlineExceeded
}

// contextError returns the error of ctx as package net does.
func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return timedOut{}
	}
	return canceled{}
}

// opError wraps err as package net does, which calls setsockopt(2) the operation "set".
func opError(op, network string, source, addr net.Addr, err error) error {
	if op == "setsockopt" {
		op = "set"
	}
	return &net.OpError{Op: op, Net: network, Source: source, Addr: addr, Err: err}
}
