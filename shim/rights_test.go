package shim

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// oldKernel makes the kernel one that takes descriptors through data sockets.
func oldKernel(t *testing.T) {
	t.Helper()
	known := optPassRights
	optPassRights = 9999
	t.Cleanup(func() { optPassRights = known })
}

// TestDescriptorsInData: a program that sends descriptors through its data socket is refused by the kernel, or loses the
// socket. The node keeps none.
func TestDescriptorsInData(t *testing.T) {
	for what, old := range map[string]bool{"new kernel": false, "old kernel": true} {
		t.Run(what, func(t *testing.T) {
			if old {
				oldKernel(t)
			}
			b := newBed(t, nil)
			c := b.dial(t)
			base := descriptors(t)
			for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
				p := c.socket(kind, false)
				var peer net.Conn
				if kind == unix.SOCK_STREAM {
					p.close()
					p, peer = b.join(t, c)
				} else if r := p.ask(request{op: opBind, addr: netip.MustParseAddrPort("0.0.0.0:0")}, p.fd); r.errno != 0 {
					t.Fatal(r.errno)
				}
				data := append(make([]byte, datagramSize), "x"...)
				_, err := unix.SendmsgN(p.fd, data, unix.UnixRights(p.fd, c.fd, p.fd), nil, unix.MSG_NOSIGNAL)
				if !old {
					if err != unix.EPERM {
						t.Skipf("this kernel is older than 6.16: %v", err)
					}
					p.close()
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if p.poll(unix.POLLIN, limit)&unix.POLLHUP == 0 {
					t.Error("the socket lives")
				}
				if peer != nil {
					if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("the peer sees %v", err)
					}
				}
				p.close()
			}
			if n := b.Stats().Descriptors; old && n != 2 {
				t.Errorf("%d sockets were closed", n)
			}
			until(t, "descriptors are closed", func() bool { return descriptors(t) <= base+2 })
			b.works(t)
		})
	}
}

// TestSlowLastClose: a descriptor in the data whose last close blocks does not hold up the loop.
func TestSlowLastClose(t *testing.T) {
	oldKernel(t)
	b := newBed(t, nil)
	p, _ := b.join(t, b.dial(t))
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	slow, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(slow, &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	for err == nil { // nobody reads: close(2) waits for the whole time
		_, err = unix.SendmsgN(slow, make([]byte, 1<<16), nil, nil, unix.MSG_DONTWAIT)
	}
	const linger = 600 // seconds; until waits less
	if err := unix.SetsockoptLinger(slow, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: linger}); err != nil {
		t.Fatal(err)
	}
	b.node.EnterLoop(0, func(socket.LoopStack) { // so that the node has the last one
		if _, err := unix.SendmsgN(p.fd, []byte("x"), unix.UnixRights(slow), nil, unix.MSG_NOSIGNAL); err != nil {
			t.Error(err)
		}
		unix.Close(slow)
	})
	until(t, "the socket is closed", func() bool { return b.Stats().Descriptors == 1 })
	b.works(t)
}

// TestErrorsAreKeptForEachUser: one user's failed connections do not take the place of another's.
func TestErrorsAreKeptForEachUser(t *testing.T) {
	var table errorTable
	var first, second errorOrder
	table.put(&first, 1, ended{errno: syscall.ECONNREFUSED})
	for i := range uint64(3 * maxEnded) {
		table.put(&second, 10+i, ended{errno: syscall.ETIMEDOUT})
	}
	if n := len(table.byCookie); n > maxEnded+1 {
		t.Errorf("%d errors are kept", n)
	}
	if n := table.take(10 + 3*maxEnded - maxEnded/2).errno; n != syscall.ETIMEDOUT {
		t.Errorf("one of the latest: %v", n)
	}
	if n := table.take(10).errno; n != 0 {
		t.Errorf("the oldest: %v", n)
	}
	if n := table.take(1).errno; n != syscall.ECONNREFUSED {
		t.Errorf("that of the other user: %v", n)
	}
	if n := table.take(1).errno; n != 0 {
		t.Errorf("a second time: %v", n)
	}
	// Errors that were read make place for others first.
	var third errorOrder
	table = errorTable{}
	table.put(&third, 1, ended{errno: syscall.EPIPE})
	for i := range uint64(3 * maxEnded) {
		table.put(&third, 10+i, ended{errno: syscall.ETIMEDOUT})
		table.take(10 + i)
	}
	if n := table.take(1).errno; n != syscall.EPIPE {
		t.Errorf("the one that was not read: %v", n)
	}
	if len(third.cookies) > maxEnded {
		t.Errorf("%d cookies", len(third.cookies))
	}
}

// TestRegistrationAfterAFailure: what a failed registration leaves in the queue of the listener is not the next one's.
func TestRegistrationAfterAFailure(t *testing.T) {
	r, err := newRegistrar()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.close() })
	var fds [2]int
	for i := range fds {
		fds[i] = rawSocket(t, unix.SOCK_STREAM)
		defer unix.Close(fds[i])
	}
	listener := r.listeners[unix.SOCK_STREAM]
	defer unix.Close(listener)
	r.listeners[unix.SOCK_STREAM] = -1 // accept(2) fails, as for a process without descriptors
	if _, err := r.connect(fds[0], unix.SOCK_STREAM); err != syscall.ENFILE {
		t.Fatalf("%v, want ENFILE", err)
	}
	end, err := r.connect(fds[1], unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(end)
	if _, err := unix.Write(fds[1], []byte("x")); err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if n, err := unix.Read(end, b[:]); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
