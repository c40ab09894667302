package rdma

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/rdma/transport"
)

// rxePeer returns a context on the interface towards a host with Linux's rdma_rxe, and that host's address. MILLRACE_RXE is
// "interface,own address,peer's address". `make interop-rdma` boots a guest for it (internal/testkit/vm/rxe.sh), which runs the
// pingpong programs and testdata/verbs.py. Without the variable the test is skipped.
func rxePeer(t *testing.T, profile string) (*Context, string) {
	t.Helper()
	link := &badLink{profile: profile}
	v := strings.Split(os.Getenv("MILLRACE_RXE"), ",")
	if len(v) != 3 {
		t.Skip("MILLRACE_RXE names no host with rdma_rxe")
	}
	n, err := node.Open(node.Config{Loops: 1, Devices: []node.Device{{Name: v[0], Driver: device.AFPacket}}, OpenDevice: link.open})
	if err != nil {
		t.Fatal(err)
	}
	hops, err := nexthop.NewKernel([]string{v[0]})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(n, Config{Addr: netip.MustParseAddr(v[1]), Hops: hops})
	if err := errors.Join(err, n.Add(c.Service()), n.Start()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		t.Logf("%+v", c.count)
		if err := errors.Join(<-done, link.close(), n.Close(), hops.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, v[2]
}

// greet exchanges endpoints as libibverbs' pingpong clients do: the client first, and "done" when it is ready.
func greet(t *testing.T, peer, port string, own Endpoint) (Endpoint, net.Conn) {
	t.Helper()
	var c net.Conn
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		var err error
		if c, err = net.DialTimeout("tcp", net.JoinHostPort(peer, port), 5*time.Second); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { c.Close() })
	msg := append([]byte(own.String()), 0)
	if _, err := c.Write(msg); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(msg))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	e, err := ParseEndpoint(string(bytes.TrimRight(got, "\x00")))
	if err != nil {
		t.Fatal(err)
	}
	return e, c
}

// TestPingpongWithRxe is the client of ibv_rc_pingpong and ibv_uc_pingpong: 20 messages each way, with numbers that wrap.
func TestPingpongWithRxe(t *testing.T) {
	c, peer := rxePeer(t, "")
	for _, test := range []struct {
		name, port string
		service    Transport
		size       int
	}{{"RC", "18515", RC, 4096}, {"UC", "18516", UC, 4096}, {"RC 70000 bytes", "18520", RC, 70000}} {
		t.Run(test.name, func(t *testing.T) {
			s := newSide(t, c, test.service, 2*test.size)
			own := s.qp.Endpoint(0xfffff0)
			if err := s.qp.Modify(Init, Attr{}, netip.Addr{}); err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				if err := s.qp.PostRecv(&RecvWR{ID: uint64(i), List: []SGE{s.mr.SGE(test.size, test.size)}}); err != nil {
					t.Fatal(err)
				}
			}
			// The server leads its queue pair to ReadyToReceive before it answers.
			remote, conn := greet(t, peer, test.port, own)
			if err := s.qp.Connect(remote, ConnectConfig{PSN: own.PSN, MTU: 1024}); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte("done\x00")); err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				s.post(SendWR{ID: 100, Op: OpSend, List: []SGE{s.mr.SGE(0, test.size)}})
				for _, w := range s.completions(2) { // the send, and the answer
					if w.Status != transport.Success || w.Op == OpRecv && (w.Bytes != uint32(test.size) || w.ID != uint64(i)) {
						t.Fatalf("message %d: %+v; %+v", i, w, s.qp.Counters())
					}
				}
			}
			t.Logf("%+v", s.qp.Counters())
		})
	}
}

// verbsPeer drives the script testdata/verbs.py, a queue pair of rdma_rxe with a region of 256 KiB.
type verbsPeer struct {
	t    *testing.T
	r    *bufio.Reader
	c    net.Conn
	addr uint64
	rkey uint32
}

// command sends a line and returns the answer.
func (v *verbsPeer) command(format string, args ...any) string {
	v.t.Helper()
	if _, err := fmt.Fprintf(v.c, format+"\n", args...); err != nil {
		v.t.Fatal(err)
	}
	line, err := v.r.ReadString('\n')
	if err != nil {
		v.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// connectVerbs connects a side to the script.
func connectVerbs(t *testing.T, c *Context, peer string) (*side, *verbsPeer) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(peer, "18530"), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	v := &verbsPeer{t: t, r: bufio.NewReader(conn), c: conn}
	s := newSide(t, c, RC, 1<<18)
	type hello struct {
		QPN  uint32 `json:"qpn"`
		PSN  uint32 `json:"psn"`
		GID  string `json:"gid"`
		RKey uint32 `json:"rkey"`
		Addr uint64 `json:"addr"`
	}
	var theirs hello
	line, err := v.r.ReadString('\n')
	if err := errors.Join(err, json.Unmarshal([]byte(line), &theirs)); err != nil {
		t.Fatal(err)
	}
	v.addr, v.rkey = theirs.Addr, theirs.RKey
	own := s.qp.Endpoint(0xfffff0)
	cfg := ConnectConfig{PSN: own.PSN, MTU: 1024, MaxReads: 8}
	if err := s.qp.Connect(Endpoint{Addr: netip.MustParseAddr(peer), QPN: theirs.QPN, PSN: theirs.PSN}, cfg); err != nil {
		t.Fatal(err)
	}
	mine, _ := json.Marshal(hello{own.QPN, own.PSN, longGID(own.Addr), s.mr.RKey(), s.mr.Addr()})
	if got := v.command("%s", mine); got != "ready" {
		t.Fatalf("%q", got)
	}
	return s, v
}

// longGID returns an address as pyverbs wants it: eight groups of four digits.
func longGID(a netip.Addr) string {
	var groups []string
	b := a.As16()
	for i := 0; i < len(b); i += 2 {
		groups = append(groups, hex.EncodeToString(b[i:i+2]))
	}
	return strings.Join(groups, ":")
}

// TestOneSidedWithRxe writes, reads and executes atomics in the memory of rdma_rxe, and has it do the same here.
func TestOneSidedWithRxe(t *testing.T) {
	c, peer := rxePeer(t, "")
	s, v := connectVerbs(t, c, peer)
	mem := s.mr.Bytes()
	hash := func(b []byte) string {
		h := sha256.Sum256(b)
		return hex.EncodeToString(h[:])
	}
	one := func(w SendWR) Status {
		s.post(w)
		return s.completions(1)[0].Status
	}
	for i := range mem {
		mem[i] = byte(i*13 + i>>8)
	}
	const n = 100_001
	if st := one(SendWR{Op: OpWrite, List: []SGE{s.mr.SGE(3, n)}, RemoteAddr: v.addr + 5, RKey: v.rkey}); st != transport.Success {
		t.Fatal(st)
	}
	if got := v.command("hash %d 5", n); got != hash(mem[3:3+n]) {
		t.Error("WRITE to rxe brought other bytes")
	}
	v.command("fill 77")
	if st := one(SendWR{Op: OpRead, List: []SGE{s.mr.SGE(11, n)}, RemoteAddr: v.addr + 9, RKey: v.rkey}); st != transport.Success {
		t.Fatal(st)
	}
	if got := v.command("hash %d 9", n); got != hash(mem[11:11+n]) {
		t.Error("READ from rxe brought other bytes")
	}
	old := binary.LittleEndian.Uint64([]byte{77, 84, 91, 98, 105, 112, 119, 126}) // as "fill 77" leaves it
	for _, a := range []SendWR{{Op: OpFetchAdd, Swap: 5}, {Op: OpCompareSwap, Compare: old + 5, Swap: 1}, {Op: OpCompareSwap, Compare: 7, Swap: 2}} {
		a.List, a.RemoteAddr, a.RKey = []SGE{s.mr.SGE(0, 8)}, v.addr, v.rkey
		if st := one(a); st != transport.Success {
			t.Fatal(st)
		}
		if got := binary.LittleEndian.Uint64(mem); got != old {
			t.Errorf("%v returned %#x, want %#x", a.Op, got, old)
		}
		switch {
		case a.Op == OpFetchAdd:
			old += a.Swap
		case old == a.Compare:
			old = a.Swap
		}
	}

	v.command("fill 3")
	if got := v.command("write %d", n); !strings.HasPrefix(got, "0 ") || v.command("hash %d 0", n) != hash(mem[:n]) {
		t.Errorf("WRITE of rxe: %s", got)
	}
	for i := range mem {
		mem[i] = byte(i*17 + i>>7)
	}
	if got := v.command("read %d", n); !strings.HasPrefix(got, "0 ") || v.command("hash %d 0", n) != hash(mem[:n]) {
		t.Errorf("READ of rxe: %s", got)
	}
	binary.LittleEndian.PutUint64(mem, 40)
	if got := v.command("fadd 2 0"); got != "0 2800000000000000" || mem[0] != 42 {
		t.Errorf("FETCH_ADD of rxe: %s, now %d", got, mem[0])
	}
	if got := v.command("cswap 42 9"); got != "0 2a00000000000000" || mem[0] != 9 {
		t.Errorf("CMP_SWAP of rxe: %s, now %d", got, mem[0])
	}
	t.Logf("%+v", s.qp.Counters())
}

// TestLossBetweenRxeAndHere writes and reads 8 MiB at 1 % loss with reordering in both directions, by requests of either side.
func TestLossBetweenRxeAndHere(t *testing.T) {
	c, peer := rxePeer(t, "loss=1% delay=100us reorder=1% seed=9")
	s, v := connectVerbs(t, c, peer)
	mem := s.mr.Bytes()
	const n = 1 << 18
	for round := range 16 {
		for i := range mem {
			mem[i] = byte(i*round + i>>8)
		}
		h := sha256.Sum256(mem)
		s.post(SendWR{Op: OpWrite, List: []SGE{s.mr.SGE(0, n)}, RemoteAddr: v.addr, RKey: v.rkey})
		if w := s.completions(1)[0]; w.Status != transport.Success {
			t.Fatalf("WRITE %d: %v; %+v", round, w.Status, s.qp.Counters())
		}
		if got := v.command("hash %d 0", n); got != hex.EncodeToString(h[:]) {
			t.Fatalf("WRITE %d brought other bytes", round)
		}
		clear(mem)
		if round%2 == 0 {
			s.post(SendWR{Op: OpRead, List: []SGE{s.mr.SGE(0, n)}, RemoteAddr: v.addr, RKey: v.rkey})
			if w := s.completions(1)[0]; w.Status != transport.Success {
				t.Fatalf("READ %d: %v; %+v", round, w.Status, s.qp.Counters())
			}
		} else if got := v.command("write %d", n); !strings.HasPrefix(got, "0 ") {
			t.Fatalf("WRITE %d of rxe: %s", round, got)
		}
		if sha256.Sum256(mem) != h {
			t.Fatalf("round %d brought other bytes", round)
		}
	}
	t.Logf("%+v", s.qp.Counters())
}

// TestRefusedByRxe has a WRITE with a wrong key, which both sides refuse in the same way.
func TestRefusedByRxe(t *testing.T) {
	c, peer := rxePeer(t, "")
	t.Run("by rxe", func(t *testing.T) {
		s, v := connectVerbs(t, c, peer)
		s.post(SendWR{Op: OpWrite, List: []SGE{s.mr.SGE(0, 8)}, RemoteAddr: v.addr, RKey: v.rkey ^ 1})
		if w := s.completions(1)[0]; w.Status != transport.RemoteAccess || s.qp.State() != Error {
			t.Errorf("%v", w.Status)
		}
	})
	t.Run("here", func(t *testing.T) {
		s, v := connectVerbs(t, c, peer)
		if err := s.mr.Dereg(); err != nil {
			t.Fatal(err)
		}
		if got := v.command("write 8"); !strings.HasPrefix(got, "10 ") || s.qp.State() != Error { // IBV_WC_REM_ACCESS_ERR
			t.Errorf("rxe got %s", got)
		}
	})
}

// TestDatagramPingpongWithRxe is the client of ibv_ud_pingpong, whose queue key is a constant of that program.
func TestDatagramPingpongWithRxe(t *testing.T) {
	const qkey, size = 0x11111111, 1024
	c, peer := rxePeer(t, "")
	s := newSide(t, c, UD, 2*(40+size))
	if err := s.qp.OpenDatagrams(qkey); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := s.qp.PostRecv(&RecvWR{List: []SGE{s.mr.SGE(0, 40+size)}}); err != nil {
			t.Fatal(err)
		}
	}
	ah, err := s.pd.CreateAH(netip.MustParseAddr(peer))
	if err != nil {
		t.Fatal(err)
	}
	remote, conn := greet(t, peer, "18517", s.qp.Endpoint(0))
	if _, err := conn.Write([]byte("done\x00")); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		s.post(SendWR{Op: OpSend, List: []SGE{s.mr.SGE(40+size, size)}, Path: ah.Number(), DestQP: remote.QPN, QKey: qkey})
		for _, w := range s.completions(2) {
			if w.Status != transport.Success || w.Op == OpRecv && (w.Bytes != 40+size || w.SrcQP != remote.QPN) {
				t.Fatalf("datagram %d: %+v", i, w)
			}
		}
	}
	if err := ah.Destroy(); err != nil {
		t.Fatal(err)
	}
}
