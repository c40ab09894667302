package rdma

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/rdma/transport"
)

// inGuest runs a command of the host with rdma_rxe, which has a shell on TCP port 18540 (internal/testkit/vm/rxe.sh). The function
// that it returns waits for the end, and requires that it succeeded.
func inGuest(t *testing.T, peer, command string) (wait func() string) {
	t.Helper()
	var c net.Conn
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		var err error
		if c, err = net.DialTimeout("tcp", net.JoinHostPort(peer, "18540"), 5*time.Second); err == nil {
			break
		} else if time.Now().After(end) {
			t.Skipf("the host with rdma_rxe runs no commands: %v", err)
		}
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(90 * time.Second))
	if _, err := fmt.Fprintf(c, "timeout 60 %s 2>&1; echo exit $?; exit\n", command); err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		out, err := io.ReadAll(c)
		if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "exit 0") {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
}

// connectTo connects to a listener of the host, which may not have begun to listen.
func connectTo(t *testing.T, s *side, to netip.AddrPort) *CMID {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		id, err := s.qp.ctx.ConnectCM(short(t), to, s.qp, ConnParam{MTU: 1024, MaxReads: 1})
		if err == nil {
			return id
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
		t.Log(err)
		if err := s.qp.Modify(Reset, Attr{}, netip.Addr{}); err != nil {
			t.Fatal(err)
		}
		s.completions(s.drain())
	}
}

// drain returns the number of completions that wait.
func (s *side) drain() int {
	s.cq.mu.Lock()
	defer s.cq.mu.Unlock()
	return int(s.cq.tail - s.cq.head)
}

// rpingInfo is the message of rping: address, key and size of a buffer, all big-endian.
func rpingInfo(mr *MR, off, size int) []byte {
	b := binary.BigEndian.AppendUint64(nil, mr.Addr()+uint64(off))
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, mr.RKey()), uint32(size))
}

// rpingSide is one side of rping's exchange: region bytes 0 to 64 KiB are data, behind them are messages.
type rpingSide struct{ *side }

const rpingData = 1 << 16

func (r rpingSide) postRecv() {
	r.t.Helper()
	if err := r.qp.PostRecv(&RecvWR{ID: 1, List: []SGE{r.mr.SGE(rpingData, 16)}}); err != nil {
		r.t.Fatal(err)
	}
}

func (r rpingSide) send(b []byte) {
	r.t.Helper()
	copy(r.mr.Bytes()[rpingData+64:], b)
	r.post(SendWR{Op: OpSend, List: []SGE{r.mr.SGE(rpingData+64, len(b))}})
}

// expect waits for completions, of which one is of a receive if it is true.
func (r rpingSide) expect(n int, recv bool) {
	r.t.Helper()
	got := false
	for _, w := range r.completions(n) {
		if w.Status != transport.Success {
			r.t.Fatalf("%+v; %+v", w, r.qp.Counters())
		}
		got = got || w.Op == OpRecv
	}
	if got != recv {
		r.t.Fatalf("a message came: %v", got)
	}
}

// TestRpingServerOfRxe is the client of rping: the server of the host READs and WRITEs this side's memory.
func TestRpingServerOfRxe(t *testing.T) {
	c, peer := rxePeer(t, "")
	wait := inGuest(t, peer, "rping -s -a 198.18.0.2 -p 7174 -C 10 -v")
	s := rpingSide{newSide(t, c, RC, rpingData+128)}
	if err := s.qp.Modify(Init, Attr{}, netip.Addr{}); err != nil {
		t.Fatal(err)
	}
	id := connectTo(t, s.side, netip.AddrPortFrom(netip.MustParseAddr(peer), 7174))
	s.postRecv()
	const size, sink = 64, 1024
	for i := range 10 {
		text := fmt.Sprintf("rdma-ping-%d: from a queue pair in user space, to and fro\x00", i)
		copy(s.mr.Bytes(), text)
		s.send(rpingInfo(s.mr, 0, size))
		s.expect(2, true) // the server has read it
		s.postRecv()
		s.send(rpingInfo(s.mr, sink, size))
		s.expect(2, true) // and written it back
		if i < 9 {
			s.postRecv()
		}
		if !bytes.Equal(s.mr.Bytes()[:size], s.mr.Bytes()[sink:sink+size]) {
			t.Fatalf("iteration %d: %q", i, s.mr.Bytes()[sink:sink+size])
		}
	}
	if err := id.Disconnect(); err != nil {
		t.Error(err)
	}
	if out := wait(); !strings.Contains(out, "rdma-ping-9: from a queue pair") {
		t.Error(out)
	}
}

// TestRpingClientOfRxe is the server of rping: this side READs and WRITEs the memory of the host, whose client verifies it.
func TestRpingClientOfRxe(t *testing.T) {
	c, peer := rxePeer(t, "")
	l, err := c.ListenCM(7175, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	wait := inGuest(t, peer, "rping -c -a 198.18.0.1 -p 7175 -C 10 -v -V")
	r, err := l.GetRequest(short(t))
	if err != nil {
		t.Fatal(err)
	}
	s := rpingSide{newSide(t, c, RC, rpingData+128)}
	if err := s.qp.Modify(Init, Attr{}, netip.Addr{}); err != nil {
		t.Fatal(err)
	}
	s.postRecv()
	id, err := r.Accept(short(t), s.qp, ConnParam{})
	if err != nil {
		t.Fatal(err)
	}
	info := func() (va uint64, key uint32, n int) {
		b := s.mr.Bytes()[rpingData:]
		return binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), int(binary.BigEndian.Uint32(b[12:]))
	}
	for range 10 {
		s.expect(1, true)
		va, key, n := info()
		s.postRecv()
		s.post(SendWR{Op: OpRead, List: []SGE{s.mr.SGE(0, n)}, RemoteAddr: va, RKey: key})
		s.expect(1, false)
		s.send(make([]byte, 16))
		s.expect(2, true)
		va, key, _ = info()
		s.postRecv()
		s.post(SendWR{Op: OpWrite, List: []SGE{s.mr.SGE(0, n)}, RemoteAddr: va, RKey: key})
		s.send(make([]byte, 16))
		s.expect(2, false)
	}
	if !isDone(id) {
		t.Error("the client has not disconnected")
	}
	wait()
}

// TestUcmatoseOfRxe exchanges ten messages each way with the server and with the client of ucmatose.
func TestUcmatoseOfRxe(t *testing.T) {
	c, peer := rxePeer(t, "")
	prepare := func(t *testing.T) *side {
		s := newSide(t, c, RC, 4096)
		if err := s.qp.Modify(Init, Attr{}, netip.Addr{}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	receive := func(t *testing.T, s *side) {
		for range 10 {
			if err := s.qp.PostRecv(&RecvWR{List: []SGE{s.mr.SGE(0, 100)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	exchange := func(t *testing.T, s *side, id *CMID, first bool) {
		for range 10 {
			if first {
				s.post(SendWR{Op: OpSend, List: []SGE{s.mr.SGE(1000, 100)}})
			}
		}
		if first {
			s.completions(10)
		}
		recvs := 0
		for _, w := range s.completions(10) {
			if w.Status != transport.Success || w.Op != OpRecv || w.Bytes != 100 {
				t.Fatalf("%+v", w)
			}
			recvs++
		}
		for range 10 {
			if !first {
				s.post(SendWR{Op: OpSend, List: []SGE{s.mr.SGE(1000, 100)}})
			}
		}
		if !first {
			s.completions(10)
		}
		if first {
			_ = id.Disconnect()
		}
		if !isDone(id) {
			t.Error("the connection goes on")
		}
	}
	t.Run("server", func(t *testing.T) {
		wait := inGuest(t, peer, "ucmatose -b 198.18.0.2 -p 7471")
		s := prepare(t)
		receive(t, s)
		id := connectUcmatose(t, s, netip.AddrPortFrom(netip.MustParseAddr(peer), 7471), receive)
		exchange(t, s, id, false)
		wait()
	})
	t.Run("client", func(t *testing.T) {
		l, err := c.ListenCM(7472, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		wait := inGuest(t, peer, "ucmatose -s 198.18.0.1 -p 7472")
		r, err := l.GetRequest(short(t))
		if err != nil {
			t.Fatal(err)
		}
		s := prepare(t)
		receive(t, s)
		id, err := r.Accept(short(t), s.qp, ConnParam{})
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, s, id, true)
		wait()
	})
}

// connectUcmatose is connectTo with receives that are posted again after an attempt.
func connectUcmatose(t *testing.T, s *side, to netip.AddrPort, receive func(*testing.T, *side)) *CMID {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		id, err := s.qp.ctx.ConnectCM(short(t), to, s.qp, ConnParam{MTU: 1024})
		if err == nil {
			return id
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
		if err := s.qp.Modify(Reset, Attr{}, netip.Addr{}); err != nil {
			t.Fatal(err)
		}
		s.completions(s.drain())
		if err := s.qp.Modify(Init, Attr{}, netip.Addr{}); err != nil {
			t.Fatal(err)
		}
		receive(t, s)
	}
}
