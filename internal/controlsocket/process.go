package controlsocket

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Process is the program that listens on a control socket. Its reply to a request to stop comes before it has given interfaces
// and sockets back: who starts the next one has to wait for its end.
type Process struct{ fd int } // a pidfd, which names the process also after its number has another one

// waitPoll bounds how late Wait notices the end of its context.
const waitPoll = 50 * time.Millisecond

// Process returns the program behind the socket; nil where it cannot be known: it is this process, or in a PID namespace of its own,
// or the kernel has no pidfds (before Linux 5.3).
func (c *Client) Process(ctx context.Context) *Process {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil // the request itself reports it
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil
	}
	fd := -1
	err = raw.Control(func(s uintptr) {
		if of, err := unix.GetsockoptUcred(int(s), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && of.Pid > 0 && int(of.Pid) != os.Getpid() {
			if fd, err = unix.PidfdOpen(int(of.Pid), 0); err != nil {
				fd = -1
			}
		}
	})
	if err != nil || fd < 0 {
		return nil
	}
	return &Process{fd}
}

// Close forgets the process. p may be nil.
func (p *Process) Close() {
	if p != nil {
		unix.Close(p.fd)
	}
}

// Wait returns when the process has ended, or ctx has. p may be nil.
func (p *Process) Wait(ctx context.Context) error {
	if p == nil {
		return nil
	}
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int(waitPoll.Milliseconds()))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return ctx.Err()
}

// listenAgain makes the peer credentials of a unix socket those of this process: the kernel enters them at each listen(2).
func listenAgain(l *net.UnixListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.Listen(int(fd), unix.SOMAXCONN) })
	return errors.Join(err, failed)
}
