package control_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/control"
)

// ends are the reasons why a gateway discards connections, each with a port of its own for both sources. A backend
// serves all on its ports 9000 and up; the one that fails its check has another to be checked at.
var ends = []string{"removed", "unhealthy", "drained", "stopped"}

const resetsConfig = `
devices: [{name: front, driver: %[1]s}, {name: back1, driver: %[1]s}, {name: back2, driver: %[1]s}]
snat: [198.18.2.1, "2001:db8:2::1"]
admin: {socket: %[2]q}
services:
`

// endsConfig returns the configuration; in the second one the backend of the service "removed" is another.
func (s *site) endsConfig(driver, socket string, second bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, resetsConfig, driver, socket)
	for i, end := range ends {
		for k, source := range []string{"gateway", "client"} {
			port, net := 9000+2*i+k, 3
			if end == "removed" && second {
				net = 4
			}
			fmt.Fprintf(&b, "  - {name: %s-%s, source: %[2]s, address: [198.18.1.1:%[3]d, \"[2001:db8:1::1]:%[3]d\"], removed: drop, "+
				"backends: [{name: b%[4]d, address: [\"198.18.%[4]d.2:%[3]d\", \"[2001:db8:%[4]d::2]:%[3]d\"]}]", end, source, port, net)
			if end == "unhealthy" {
				b.WriteString(", unhealthy: drop, health: {type: tcp, port: 8999, interval: 200ms, timeout: 200ms, fall: 1, rise: 1}")
			}
			b.WriteString("}\n")
		}
	}
	return b.String()
}

// What both ends of a connection do until it ends, by the first byte that the client sends.
const (
	idle        = 'i' // both read
	clientEnds  = 'c' // the client has sent its FIN, and reads
	backendEnds = 'b' // the backend has, and reads
	downloads   = 'd' // the backend writes, in bursts, the client reads
	uploads     = 'u' // the other way round
)

// heldConn is a connection and how each end learned that it is over.
type heldConn struct {
	what            string
	client, backend chan error
	c               net.Conn // the client's end
}

// TestBothKernelsLearnAtOnceThatAConnectionIsOver ends connections in each way in which a gateway discards them. Both ends are
// kernel sockets that only wait: they get a reset that they accept, with a checksum that tshark accepts.
func TestBothKernelsLearnAtOnceThatAConnectionIsOver(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			testnet.Program(t, "tcpdump", "tshark", "curl")
			s, _ := layOut(t, "mr-gwrst-"+driver)
			backendErrs := s.serveEnds()
			socket := s.file + ".sock"
			s.must(os.WriteFile(s.file, []byte(s.endsConfig(driver, socket, false)), 0o644))
			check := s.checked()
			s.admin = true
			s.start()
			held := s.holdConns(backendErrs)
			time.Sleep(200 * time.Millisecond) // transfers are under way
			rst := "tcp[tcpflags] & tcp-rst != 0 or ip6[53] & 4 != 0"
			captures := []*capture{record(t, s.client, "eth0", "--immediate-mode", rst), record(t, s.backends[0], "eth0", "--immediate-mode", rst)}
			for _, end := range ends {
				switch end {
				case "removed":
					s.must(os.WriteFile(s.file, []byte(s.endsConfig(driver, socket, true)), 0o644))
					s.must(s.cmd.Process.Signal(syscall.SIGHUP))
				case "unhealthy":
					check.Close()
				case "drained":
					for _, service := range []string{"drained-gateway", "drained-client"} {
						s.must(admin.NewClient(socket).Drain(context.Background(), admin.Drain{
							Target: admin.Target{Service: service, Backend: "b3"}, Deadline: admin.Duration(100 * time.Millisecond), Force: true,
						}))
					}
				case "stopped":
					s.must(s.cmd.Process.Signal(syscall.SIGTERM))
				}
				began := time.Now()
				for _, c := range held[end] {
					c.over(t, end)
				}
				t.Logf("%s: all ends know after %v", end, time.Since(began).Round(time.Millisecond))
			}
			s.must(s.cmd.Wait())
			for _, c := range captures {
				if n := control.TsharkReads(t, c.stop()); n < 4*2*2*5 { // each cause, source, family and kind
					t.Errorf("%s: %d resets", c.file, n)
				}
			}
		})
	}
}

// serveEnds starts what b1 serves. It returns the channel by which the backend's end of a connection says how it
// ended, under the client's word for it: an address, as the backend may see the gateway's.
func (s *site) serveEnds() func(word string) chan error {
	s.t.Helper()
	known := make(chan map[string]chan error, 1) // a lock of what it holds
	known <- map[string]chan error{}
	of := func(word string) chan error {
		m := <-known
		defer func() { known <- m }()
		if m[word] == nil {
			m[word] = make(chan error, 1)
		}
		return m[word]
	}
	s.must(s.backends[0].Do(func() error {
		for i := range 2 * len(ends) {
			err := testnet.ServeTCP(s.t, fmt.Sprintf(":%d", 9000+i), func(c net.Conn) {
				word := make([]byte, 64)
				if _, err := io.ReadFull(c, word); err != nil {
					return
				}
				name := strings.TrimRight(string(word), " ")
				if _, err := c.Write([]byte{'!'}); err != nil {
					return
				}
				of(name) <- endOf(c.(*net.TCPConn), name[0], downloads, backendEnds)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	return of
}

// checked opens the port of b1 by which services of "unhealthy" are checked.
func (s *site) checked() (l net.Listener) {
	s.t.Helper()
	s.must(s.backends[0].Do(func() (err error) {
		l, err = net.Listen("tcp", ":8999")
		return err
	}))
	s.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l
}

// holdConns opens connections of every kind by every service and family.
func (s *site) holdConns(backend func(word string) chan error) map[string][]*heldConn {
	s.t.Helper()
	held := map[string][]*heldConn{}
	var all sync.WaitGroup
	for i, end := range ends {
		for port := 9000 + 2*i; port < 9002+2*i; port++ {
			for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
				for _, kind := range []byte{idle, clientEnds, backendEnds, downloads, uploads} {
					h := &heldConn{what: fmt.Sprintf("%c %s:%d", kind, host, port), client: make(chan error, 1)}
					h.backend = backend(h.what)
					held[end] = append(held[end], h)
					all.Go(func() { h.open(s, kind) })
				}
			}
		}
	}
	all.Wait()
	if s.t.Failed() {
		s.t.FailNow()
	}
	return held
}

// open opens a connection and has both ends do what its kind is.
func (h *heldConn) open(s *site, kind byte) {
	_, address, _ := strings.Cut(h.what, " ")
	err := errors.New("not tried")
	for end := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		err = s.client.Do(func() (err error) { // the gateway may just have been started
			h.c, err = net.DialTimeout("tcp", address, time.Second/2)
			return err
		})
	}
	if err != nil {
		s.t.Errorf("%s: %v", h.what, err)
		return
	}
	s.t.Cleanup(func() { h.c.Close() })
	h.c.SetDeadline(time.Now().Add(time.Minute))
	_, err = fmt.Fprintf(h.c, "%-64s", h.what)
	_, readErr := io.ReadFull(h.c, make([]byte, 1))
	h.c.SetDeadline(time.Time{})
	if err = errors.Join(err, readErr); err != nil {
		s.t.Errorf("%s: %v", h.what, err)
		return
	}
	go func() { h.client <- endOf(h.c.(*net.TCPConn), kind, uploads, clientEnds) }()
}

// endOf does an end's part of a connection and returns the error that ends it. It sends nothing by which it could learn of
// that, unless it is the one that transfers. After the other's FIN a kernel has the error for who asks (SO_ERROR).
func endOf(c *net.TCPConn, kind, writes, closes byte) error {
	if kind == closes {
		if err := c.CloseWrite(); err != nil {
			return err
		}
	}
	b := make([]byte, 1<<16)
	for {
		var err error
		if kind == writes {
			_, err = c.Write(b)
			time.Sleep(5 * time.Millisecond)
		} else {
			_, err = c.Read(b)
		}
		if errors.Is(err, io.EOF) {
			return pendingError(c)
		}
		if err != nil {
			return err
		}
	}
}

// pendingError waits until the kernel has an error for a connection whose peer has sent its FIN.
func pendingError(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	for range 2000 {
		n := 0
		if err := raw.Control(func(fd uintptr) { n, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) }); err != nil {
			return err
		}
		if n != 0 {
			return syscall.Errno(n)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("no error after the FIN of the other side")
}

// over expects that both ends learn of a reset. Linux reports one as EPIPE to an end that has the other's FIN
// (tcp_reset), and to a write that comes after.
func (h *heldConn) over(t *testing.T, end string) {
	t.Helper()
	for name, ch := range map[string]chan error{"client": h.client, "backend": h.backend} {
		select {
		case err := <-ch:
			if !slices.ContainsFunc([]error{syscall.ECONNRESET, syscall.EPIPE}, func(e error) bool { return errors.Is(err, e) }) {
				t.Errorf("%s, %s: the %s got %v", end, h.what, name, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s, %s: the %s still waits", end, h.what, name)
			h.c.Close()
		}
	}
}
