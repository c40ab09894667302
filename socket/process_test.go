package socket

import (
	"net/netip"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
)

// processes returns whose the sockets of a stack are: connections, UDP sockets on loop 0, listeners.
func processes(s *Stack) (conns, datagrams, listeners []*Process) {
	_ = s.group.Each(func(_ clock.Time, h *host.Host) error {
		h.TCP.Each(func(c *tcp.Conn) { conns = append(conns, ProcessOfTCP(c.Owner())) })
		if h.Index() == 0 {
			h.UDP.Each(func(u *udp.Socket) { datagrams = append(datagrams, ProcessOfUDP(u.Owner())) })
		}
		return nil
	})
	for _, l := range s.Listeners() {
		listeners = append(listeners, l.Process())
	}
	return conns, datagrams, listeners
}

// TestProcessesOfSockets: a socket has the process of what opened it, an accepted one that of its listener at the time.
func TestProcessesOfSockets(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	curl, nginx := &Process{PID: 1, UID: 1000, Command: "curl"}, &Process{PID: 2, Command: "nginx"}
	check := func(what string, s *Stack, conn, datagram, listener *Process) {
		t.Helper()
		conns, datagrams, listeners := processes(s)
		if len(conns) != 1 || len(datagrams) != 1 || conns[0] != conn || datagrams[0] != datagram || len(listeners) > 0 && listeners[0] != listener {
			t.Errorf("%s: %v %v %v", what, conns, datagrams, listeners)
		}
	}
	l, err := x.b.ListenWith(t.Context(), &ListenConfig{Process: nginx}, "tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	p, err := x.b.ListenPacketWith(t.Context(), &ListenConfig{Process: nginx}, "udp", ":53")
	if err != nil {
		t.Fatal(err)
	}
	for name, dial := range map[string]func() (*TCPConn, error){
		"DialWith": func() (*TCPConn, error) {
			c, err := x.a.DialWith(t.Context(), &Dialer{Process: curl}, "tcp", addrB+":80")
			if err != nil {
				return nil, err
			}
			return c.(*TCPConn), nil
		},
		"StartDial": func() (*TCPConn, error) {
			return x.a.StartDial(&Dialer{Process: curl}, netip.MustParseAddrPort(addrB+":80"))
		},
		"Connect": func() (*TCPConn, error) {
			f, ch := report(x.a)
			if _, err := x.a.Connect(&Dialer{Process: curl}, netip.MustParseAddrPort(addrB+":80"), f); err != nil {
				return nil, err
			}
			r := awaitConnect(t, ch)
			return r.in.Conn(), r.err
		},
	} {
		c, err := dial()
		if err != nil {
			t.Fatal(name, err)
		}
		s, err := l.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		u, err := x.a.DialWith(t.Context(), &Dialer{Process: curl}, "udp4", addrB+":53")
		if err != nil {
			t.Fatal(err)
		}
		check(name, x.b, nginx, nginx, nginx)
		if conns, _, _ := processes(x.a); len(conns) != 1 || conns[0] != curl {
			t.Error(name, conns)
		}
		s.SetProcess(nil)
		p.SetProcess(curl)
		check(name+", changed", x.b, nil, curl, nginx)
		p.SetProcess(nginx)
		_, _, _ = s.Abort(), c.Abort(), u.Close()
		x.a.EnterLoop(0, func(LoopStack) {})
		eventually(t, "connections are left", func() bool {
			conns, _, _ := processes(x.b)
			return len(conns) == 0
		})
	}
	_, _ = l.Close(), p.Close()
	if len(x.b.Listeners()) != 0 {
		t.Error("a closed listener is there still")
	}
	b, err := x.b.Bind(&BindConfig{}, "tcp", netip.MustParseAddrPort("0.0.0.0:0"))
	if err != nil {
		t.Fatal(err)
	}
	if l, err = b.Listen(&ListenConfig{Process: curl}); err != nil || l.Process() != curl {
		t.Error(err)
	}
	_ = l.Close()
	x.checkEmpty(t)
}
