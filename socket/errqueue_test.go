package socket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// linuxErrors sends a datagram to a port at which nothing listens, from a socket of the kernel with IP_RECVERR,
// and returns what the error queue has of it.
func linuxErrors(t *testing.T, connected bool) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	to := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: 9}
	err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
	if connected {
		err = errors.Join(err, unix.Connect(fd, to), unix.Send(fd, []byte("datagram"), 0))
	} else {
		err = errors.Join(err, unix.Sendto(fd, []byte("datagram"), 0, to))
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	pending, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	data, control := make([]byte, 100), make([]byte, 200)
	n, cn, _, from, err := unix.Recvmsg(fd, data, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := unix.ParseSocketControlMessage(control[:cn])
	if err != nil || len(msgs) != 1 {
		t.Fatal(len(msgs), err)
	}
	e := msgs[0].Data // struct sock_extended_err: errno, origin, type, code, pad, info, data; struct sockaddr_in
	_, _, _, _, again := unix.Recvmsg(fd, data, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	return fmt.Sprint(pending, binary.NativeEndian.Uint32(e), e[4], e[5], e[6], binary.NativeEndian.Uint32(e[8:]), from.(*unix.SockaddrInet4).Port, string(data[:n]), again)
}

// TestErrorQueueLikeLinux compares the error queues of UDP sockets.
func TestErrorQueueLikeLinux(t *testing.T) {
	for _, connected := range []bool{true, false} {
		x := newTestbed(t, testbedConfig{loops: 2})
		queue := func(o *UDPOptions) { o.QueueErrors = true }
		to := netip.MustParseAddrPort(addrB + ":9")
		var c *UDPConn
		if connected {
			d, err := x.a.DialWith(t.Context(), &Dialer{UDPOptions: queue}, "udp", to.String())
			if err != nil {
				t.Fatal(err)
			}
			c = d.(*UDPConn)
			_, _ = c.Write([]byte("datagram"))
		} else {
			c = x.listenPacket(t, x.a, "udp4", ":0", &UDPOptions{QueueErrors: true})
			_, _ = c.WriteToUDPAddrPort([]byte("datagram"), to)
		}
		p := x.a.NewPoller()
		if err := p.Add(c, Interest{}); err != nil {
			t.Fatal(err)
		}
		if ev := waitEvents(t, p); ev != Failed {
			t.Errorf("events %b", ev)
		}
		var pending syscall.Errno
		errors.As(c.SocketError(), &pending)
		e, err := c.ReadError()
		if err != nil {
			t.Fatal(err)
		}
		_, again := c.ReadError()
		checkOpError(t, again, "recvmsg", syscall.EAGAIN)
		errors.As(again, new(syscall.Errno))
		var errno syscall.Errno
		errors.As(e.Err, &errno)
		ours := fmt.Sprint(int(pending), int(errno), uint8(e.Origin), e.Type, e.Code, e.Info, e.To.Port(), string(e.Data), unix.EAGAIN)
		if linux := linuxErrors(t, connected); ours != linux {
			t.Errorf("connected %v: %s\nLinux: %s", connected, ours, linux)
		}
		if e.From.String() != addrB || e.To != to {
			t.Errorf("from %v, to %v", e.From, e.To)
		}
		if n, _ := p.Wait(make([]Event, 1), 0); n != 0 {
			t.Error("an empty error queue is reported")
		}
		_ = c.Close()
	}
}

// TestNoErrorsWithoutTheOption leaves the error queue of an unconnected socket empty.
func TestNoErrorsWithoutTheOption(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c := x.listenPacket(t, x.a, "udp4", ":0", nil)
	_, _ = c.WriteToUDPAddrPort([]byte("datagram"), netip.MustParseAddrPort(addrB+":9"))
	time.Sleep(20 * time.Millisecond)
	_, err := c.ReadError()
	checkOpError(t, err, "recvmsg", syscall.EAGAIN)
	if err := c.SocketError(); err != nil {
		t.Error(err)
	}
}

// TestStamps has times for each write and read, in order.
func TestStamps(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	begin := time.Now().Add(-100 * time.Millisecond) // a loop reads its clock before it takes packets
	for _, e := range []*TCPConn{c, s} {
		if err := e.SetOptions(func(o *TCPOptions) { o.Stamps = StampSent | StampAcked | StampReceived }); err != nil {
			t.Fatal(err)
		}
	}
	p := x.a.NewPoller()
	if err := p.Add(c, Interest{Edge: true}); err != nil {
		t.Fatal(err)
	}
	var last [2]time.Time
	for i, b := range []string{"abc", "de"} {
		_, _ = c.Write([]byte(b))
		if ev := waitEvents(t, p); ev != Failed {
			t.Errorf("events %b", ev)
		}
		n, r, err := s.ReadWith(make([]byte, 1), 0)
		if n != 1 || r.Left != len(b)-1 || err != nil || r.Time.Before(begin) || r.Time.After(time.Now()) {
			t.Errorf("%d bytes, %+v, %v", n, r, err)
		}
		if _, err := io.ReadFull(s, make([]byte, len(b)-1)); err != nil {
			t.Fatal(err)
		}
		want := []uint32{2, 4}[i]
		for k, kind := range []uint32{uint32(StampSent), uint32(StampAcked)} {
			var e QueuedError
			eventually(t, "no time", func() bool {
				var err error
				e, err = c.ReadError()
				return err == nil
			})
			if e.Origin != OriginStamp || e.Info != kind || e.ID != want || !errors.Is(e.Err, syscall.ENOMSG) || e.Time.Before(begin) || e.Time.After(time.Now()) {
				t.Errorf("%+v", e)
			}
			if e.Time.Before(last[0]) {
				t.Errorf("time %d of write %d is before the one before", k, i)
			}
			last[0] = e.Time
		}
	}
	_, err := c.ReadError()
	checkOpError(t, err, "recvmsg", syscall.EAGAIN)
	_, _ = c.Close(), s.Close()
	x.checkEmpty(t)
}
