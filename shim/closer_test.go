package shim

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// slowToClose returns a descriptor whose last close takes some seconds: a connection with unsent data and SO_LINGER.
func slowToClose(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	for err == nil { // the other end does not read
		_, err = unix.SendmsgN(fd, make([]byte, 1<<20), nil, nil, unix.MSG_DONTWAIT)
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 600}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// threads returns how many threads the process has.
func threads(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// closesLate waits at the end of a test for channels that Close has not waited for: by then what is slow to close is closed.
func (b *bed) closesLate(t *testing.T) {
	t.Cleanup(func() { until(t, "channels are closed", func() bool { return b.Stats().Channels == 0 }) })
}

// TestSlowCloses: descriptors whose close takes long take one thread of the node, and count for the user's channels. Others are
// served meanwhile, and Close does not wait.
func TestSlowCloses(t *testing.T) {
	const passed = 24
	b := newBed(t, nil)
	b.closesLate(t)
	_, token := b.another(70001)
	var channels []*client
	var fds []int
	for range passed {
		channels = append(channels, b.as(t, token))
		fds = append(fds, slowToClose(t))
	}
	before := threads(t)
	b.cfg.Stack.EnterLoop(0, func(socket.LoopStack) { // the node reads nothing meanwhile, so that it has the last copies
		for i, c := range channels {
			data := []byte(nil) // no request: the channel ends
			if i%2 == 0 {
				var out [requestSize]byte
				q := request{op: opNames, id: 9}
				q.encode(out[:])
				data = out[:]
			}
			if err := unix.Sendmsg(c.fd, data, unix.UnixRights(fds[i]), nil, unix.MSG_NOSIGNAL); err != nil {
				t.Error(err)
			}
			unix.Close(fds[i])
		}
	})
	b.works(t)
	if n := b.Stats().Channels; n < passed-1 {
		t.Errorf("%d channels count, of %d", n, passed)
	}
	if n := threads(t); n > before+8 {
		t.Errorf("%d threads for %d descriptors", n-before, passed)
	}
	brief("Close", func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// brief runs f, which a descriptor that is slow to close must not hold up: it would for minutes. A loop that is held up
// does not let the test end, so that the process does.
func brief(what string, f func()) {
	defer time.AfterFunc(limit, func() { panic(what + " waits for a descriptor that is slow to close") }).Stop()
	f()
}

// pass sends a descriptor that is slow to close, and keeps no copy. False is that the kernel refuses it (SO_PASSRIGHTS of Linux 6.16).
func pass(t *testing.T, fd int, data []byte) bool {
	t.Helper()
	slow := slowToClose(t)
	err := unix.Sendmsg(fd, data, unix.UnixRights(slow), nil, unix.MSG_NOSIGNAL)
	if err == unix.EPERM {
		_ = unix.SetsockoptLinger(slow, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
	} else if err != nil {
		t.Error(err)
	}
	unix.Close(slow)
	return err == nil
}

// TestSlowClosesInQueues: descriptors in messages that the node has not read, or that one program has sent to another, keep no other user
// waiting when the node closes the last copy of the socket that they wait in.
func TestSlowClosesInQueues(t *testing.T) {
	const loop = 0
	for name, attack := range map[string]func(t *testing.T, b *bed){
		"behind what ends a channel": func(t *testing.T, b *bed) {
			_, token := b.another(70001)
			c := b.as(t, token)
			b.cfg.Stack.EnterLoop(loop, func(socket.LoopStack) { // the node reads neither meanwhile
				_, _ = unix.Write(c.fd, []byte("no request"))
				pass(t, c.fd, []byte("behind"))
			})
		},
		"before HELLO": func(t *testing.T, b *bed) {
			fd := rawSocket(t, unix.SOCK_SEQPACKET)
			defer unix.Close(fd)
			b.mu.Lock() // the channel is not read before it is in the table
			if err := unix.Connect(fd, &unix.SockaddrUnix{Name: b.cfg.Path}); err != nil {
				t.Error(err)
			}
			_, _ = unix.Write(fd, []byte("no request"))
			pass(t, fd, []byte("behind"))
			b.mu.Unlock()
		},
		"in a refused channel": func(t *testing.T, b *bed) {
			uid := uint32(os.Geteuid())
			b.mu.Lock()
			u := &user{uid: uid, channels: 1 << 20} // at the limit
			old := b.users[uid]
			b.users[uid] = u
			fd := rawSocket(t, unix.SOCK_SEQPACKET)
			if err := unix.Connect(fd, &unix.SockaddrUnix{Name: b.cfg.Path}); err != nil {
				t.Error(err)
			}
			_, _ = unix.Write(fd, nil)
			pass(t, fd, nil)
			b.mu.Unlock()
			until(t, "it is refused", func() bool { return u.limited.Load() > 0 })
			b.mu.Lock()
			b.users[uid] = old
			b.mu.Unlock()
			unix.Close(fd)
		},
		"in an end of a pair": func(t *testing.T, b *bed) {
			client, server := b.pairOf(t, "127.0.0.1:0", "127.0.0.1")
			_ = unix.SetsockoptInt(client.fd, unix.SOL_SOCKET, optPassRights, 1)
			if !pass(t, server.fd, []byte("x")) {
				t.Error("the kernel refuses what the program has permitted")
			}
			client.last(t, b, loop)
		},
		"in a listener": func(t *testing.T, b *bed) {
			l := b.dial(t).socket(unix.SOCK_STREAM, false)
			local, err := l.listen("127.0.0.1:0", 5)
			if err != nil {
				t.Fatal(err)
			}
			client := b.dial(t).socket(unix.SOCK_STREAM, false)
			if err := client.connect(local.String()); err != nil {
				t.Fatal(err)
			}
			if !pass(t, client.fd, []byte("x")) {
				t.Log("the kernel refuses descriptors for ends that wait in a listener")
			}
			client.close()
			l.last(t, b, loop)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, nil)
			b.closesLate(t)
			attack(t, b)
			brief("a channel", func() { b.works(t) })
			brief("the loop", func() { b.cfg.Stack.EnterLoop(loop, func(socket.LoopStack) {}) })
			brief("Close", func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// last makes a request whose copy of the socket is the last.
func (p *program) last(t *testing.T, b *bed, loop int) {
	t.Helper()
	b.cfg.Stack.EnterLoop(loop, func(socket.LoopStack) { // the node reads it when the program has closed its own
		var out [requestSize]byte
		q := request{op: opNames, id: 77}
		q.encode(out[:])
		if err := unix.Sendmsg(p.client.fd, out[:], unix.UnixRights(p.fd), nil, unix.MSG_NOSIGNAL); err != nil {
			t.Error(err)
		}
		unix.Close(p.fd)
		p.fd = -1
	})
	time.Sleep(100 * time.Millisecond)
}
