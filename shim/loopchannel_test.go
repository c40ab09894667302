package shim

import (
	"context"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// TestChannelEndsDuringRequest: a process ends while a goroutine does its request, and the channel is free when that is over.
func TestChannelEndsDuringRequest(t *testing.T) {
	begun, goOn := make(chan bool), make(chan bool)
	b := newBed(t, func(c *Config) {
		c.Lookup = func(context.Context, string) ([]netip.Addr, error) {
			begun <- true
			<-goOn
			return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
		}
	})
	c, other := b.dial(t), b.dial(t)
	q := request{op: opResolve, id: 1, value: []byte("name")}
	var out [requestSize]byte
	q.encode(out[:])
	if err := unix.Sendto(c.fd, out[:], unix.MSG_NOSIGNAL, nil); err != nil {
		t.Fatal(err)
	}
	<-begun
	if r := other.ask(request{op: opNames}, other.socket(unix.SOCK_STREAM, false).fd); r.errno != 0 {
		t.Errorf("another channel meanwhile: %v", r.errno)
	}
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	p := other.socket(unix.SOCK_STREAM, false)
	for range 100 { // the loop sees the end of the first channel meanwhile
		other.ask(request{op: opNames}, p.fd)
	}
	if n := b.Stats().Channels; n != 2 {
		t.Errorf("%d channels during the request", n)
	}
	close(goOn)
	until(t, "the channel is gone", func() bool { return b.Stats().Channels == 1 })
}

// TestRequestsBehindEachOther: those of the loop, and those of goroutines between them, are done in their order.
func TestRequestsBehindEachOther(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	p := c.socket(unix.SOCK_STREAM, false)
	send := func(q request) {
		var out [requestSize]byte
		q.encode(out[:])
		if _, err := unix.SendmsgN(c.fd, out[:], unix.UnixRights(p.fd), nil, unix.MSG_NOSIGNAL); err != nil {
			t.Fatal(err)
		}
	}
	all := []request{
		{op: opSetOption, level: unix.IPPROTO_TCP, name: unix.TCP_NODELAY, value: appendInt(nil, 1)}, // in the loop
		{op: opBind, addr: netip.MustParseAddrPort("127.0.0.1:0")},                                   // not
		{op: opGetOption, level: unix.IPPROTO_TCP, name: unix.TCP_NODELAY, arg: 4},
		{op: opListen, arg: 1}, // not
		{op: opNames},
		{op: opGetOption, level: unix.SOL_SOCKET, name: unix.SO_ACCEPTCONN, arg: 4}, // not: it listens
	}
	for i, q := range all {
		q.id = uint32(i + 1)
		send(q)
	}
	for i, q := range all {
		var in [replySize + 1]byte
		n, err := recv(c.fd, in[:])
		if err != nil {
			t.Fatal(err)
		}
		r, err := decodeReply(in[:n])
		if err != nil || r.id != uint32(i+1) || r.op != q.op || r.errno != 0 {
			t.Fatalf("reply %d: %+v, %v", i+1, r, err)
		}
		if q.op == opGetOption && order.Uint32(r.value) != 1 {
			t.Errorf("option %d is %d", q.name, order.Uint32(r.value))
		}
		if q.op == opNames && r.local.Port() == 0 {
			t.Errorf("names %+v", r)
		}
	}
	if n := b.Stats().Requests; n != uint64(len(all))+1 {
		t.Errorf("%d requests, %d were sent after HELLO", n, len(all))
	}
}

// TestLoopRefusesForeignDescriptors: what is no socket of the library is the goroutine's, which may wait when it closes it.
func TestLoopRefusesForeignDescriptors(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	for _, what := range []op{opConnect, opNames, opSetOption, opGetOption} {
		r := c.ask(request{op: what, addr: netip.MustParseAddrPort(peerAddr + ":1"), value: appendInt(nil, 1)}, pipe[0])
		if r.errno != syscall.ENOTSOCK {
			t.Errorf("request %d: %v", what, r.errno)
		}
	}
	unix.Close(pipe[0])
	if _, err := unix.Write(pipe[1], []byte{1}); err != syscall.EPIPE {
		t.Errorf("the node still has the pipe: %v", err)
	}
	unix.Close(pipe[1])
}

// TestConnectOnLoopWithListener: a program begins to listen after the loop has seen that none does, and the loop goes on with the
// connection. It must not enter itself, nor another loop.
func TestConnectOnLoopWithListener(t *testing.T) {
	b := newBed(t, nil)
	l := b.dial(t).socket(unix.SOCK_STREAM, false)
	local, err := l.listen("127.0.0.1:0", 5)
	if err != nil {
		t.Fatal(err)
	}
	p := b.dial(t).socket(unix.SOCK_STREAM, false)
	ch := &channel{s: b.Server, user: b.userOf(uint32(os.Getuid())), owner: &socket.Process{}}
	done := make(chan error, 1)
	go b.cfg.Stack.EnterLoop(0, func(in socket.LoopStack) {
		k, err := b.findNow(ch, p.fd)
		if err == nil {
			err = k.connect(ch, &request{op: opConnect, addr: local}, &reply{}, p.fd, in.Connect, true)
		}
		done <- err
	})
	select {
	case err := <-done:
		if err != syscall.EINPROGRESS {
			t.Errorf("connect: %v", err)
		}
	case <-time.After(limit):
		t.Fatal("the loop waits for itself")
	}
	if q, _, err := l.accept(); err != nil {
		t.Error(err)
	} else {
		q.close()
	}
	if n := b.stats.pairs.Load(); n != 0 {
		t.Errorf("%d pairs", n)
	}
}

// TestSecondHello: a process cannot become another user, or a supervisor, on a channel that a loop reads.
func TestSecondHello(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	if r, err := c.try(request{op: opHello, name: frontSeccomp, arg: requestSize, value: []byte("other")}); err == nil {
		t.Errorf("a second HELLO: %+v", r)
	}
	until(t, "the channel is gone", func() bool { return b.Stats().Channels == 0 })
	if n := b.Stats().Malformed; n != 1 {
		t.Errorf("%d malformed requests", n)
	}
}
