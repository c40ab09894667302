package proxy

import (
	"bytes"
	ctls "crypto/tls"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/proxyproto"
	"github.com/millrace/millrace/tls/clienthello"
	"golang.org/x/sys/unix"
)

// Modes of FuzzPass, as bits.
const (
	passTLS    = 1 << iota // connections are routed by their hello
	passHeader             // a PROXY header comes first
	passSend               // and one is sent
	passSlow               // windows are small
	passReset              // one side ends by a reset
	passRefuse             // some backends refuse connections
)

// FuzzPass passes connections through whose clients send anything, in any pieces, while peers read slowly, end or reset
// their sides, and backends refuse. An oracle, which has all of the client's bytes at once, says where the connection
// goes and what arrives: exactly that does, or after a reset the beginning of it; and all is given back.
func FuzzPass(f *testing.F) {
	hello := rawHello(f, &ctls.Config{ServerName: "a.test"})
	other := rawHello(f, &ctls.Config{ServerName: "none.test"})
	h := proxyproto.TCP(2, netip.MustParseAddrPort("198.18.0.9:999"), netip.MustParseAddrPort("198.18.0.1:443"))
	head, _ := h.Append(nil)
	for i, in := range [][]byte{hello, inRecords(hello, 40), other, []byte("GET / HTTP/1.1\r\n\r\n"), hello[:60], nil} {
		for mode := range uint8(64) {
			if int(mode)%6 != i {
				continue
			}
			all := in
			if mode&passHeader != 0 && i != 3 {
				all = append(bytes.Clone(head), in...)
			}
			f.Add(append(bytes.Clone(all), "and more"...), []byte("answer"), uint64(mode), mode)
		}
	}
	f.Fuzz(fuzzPass)
}

func fuzzPass(t *testing.T, front, back []byte, seed uint64, mode uint8) {
	if len(front)+len(back) > 40<<10 {
		return
	}
	random := rand.New(rand.NewPCG(seed, 2))
	f := &passFuzz{t: t, mode: mode, random: random, front: front, back: back}
	r := newMemRig(t, f.configure)
	f.memRig = r
	r.backend = f.serve
	accept := r.loop.Dialed
	r.loop.Dialed = func(a netip.AddrPort) (func(*memtransport.Peer), error) {
		if mode&passRefuse != 0 && random.IntN(3) == 0 {
			return nil, unix.ECONNREFUSED
		}
		return accept(a)
	}
	r.loop.Cut = func(n int) int { return 1 + random.IntN(n) }
	client := r.connect(memStream)
	f.window(client)
	sent := f.play(client)
	f.check(client, sent)
	r.nothingLeft(client)
}

// passFuzz is a run of FuzzPass.
type passFuzz struct {
	*memRig
	t           *testing.T
	mode        uint8
	random      *rand.Rand
	front, back []byte
	arrived     []byte // at the backend
	got         []byte // by the client
	server      *memtransport.Peer
	answered    []byte // what the backend has sent
	reset       bool
}

func (f *passFuzz) configure(r *memRig, tree *Tree) {
	mode := StreamTCP
	if f.mode&passTLS != 0 {
		mode = StreamTLS
	}
	ln := r.stream(tree, mode)
	ln.Table, _ = route.New([]route.Rule{{Name: "a", Match: route.Match{Hosts: []string{"a.test", "*.a.test"}}}})
	if mode == StreamTCP {
		ln.Table, _ = route.New([]route.Rule{{Name: "all"}})
	}
	if f.mode&passHeader != 0 {
		ln.ProxyProtocol = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	var all []pool.BackendOptions
	for _, a := range []string{"198.18.1.1:1", "198.18.1.2:1", "198.18.1.3:1"} {
		all = append(all, pool.BackendOptions{Address: netip.MustParseAddrPort(a)})
	}
	if err := r.to.Update(0, pool.Options{Name: "p"}, all); err != nil {
		f.t.Fatal(err)
	}
	r.rule.Attempts = 2
	if f.mode&passSend != 0 {
		r.to.ProxyHeader = ProxyHeader{Version: uint8(1 + f.random.IntN(2)), TLVs: true}
	}
}

func (f *passFuzz) window(p *memtransport.Peer) {
	if f.mode&passSlow != 0 {
		p.Window = 1 + f.random.IntN(500)
	}
}

func (f *passFuzz) serve(p *memtransport.Peer) {
	if f.server != nil {
		f.t.Error("two backends get the connection")
	}
	f.server = p
	f.window(p)
}

// play has both sides send, read and end in a random order. It returns how much the client has sent.
func (f *passFuzz) play(client *memtransport.Peer) (sent int) {
	ended, over := false, false
	for steps := 0; steps < 20_000 && !over; steps++ {
		s := f.server
		switch f.random.IntN(8) {
		case 0, 1:
			if sent < len(f.front) {
				n := 1 + f.random.IntN(len(f.front)-sent)
				client.Write(f.front[sent : sent+n])
				sent += n
			} else if !ended {
				ended = true
				client.CloseWrite()
			}
		case 2:
			if s != nil && len(f.answered) < len(f.back) {
				n := 1 + f.random.IntN(len(f.back)-len(f.answered))
				s.Write(f.back[len(f.answered) : len(f.answered)+n])
				f.answered = f.back[:len(f.answered)+n]
			}
		case 3, 4:
			f.got = append(f.got, client.Take()...)
		case 5, 6:
			if s != nil {
				f.arrived = append(f.arrived, s.Take()...)
			}
		case 7:
			if f.mode&passReset != 0 && f.random.IntN(8) == 0 && !f.reset {
				f.reset = true
				if s != nil && f.random.IntN(2) == 0 {
					s.Abort()
				} else {
					client.Abort()
				}
			}
		}
		f.run()
		if n := f.heldBytes(); n > 1<<20 {
			f.t.Fatalf("%d bytes are held", n)
		}
		if s != nil && s.Ended && len(f.answered) == len(f.back) && !f.reset {
			s.CloseWrite()
		}
		over = client.Ended && (s == nil || s.Ended) && ended
	}
	for range 200 { // what is still on its way
		f.got = append(f.got, client.Take()...)
		if f.server != nil {
			f.arrived = append(f.arrived, f.server.Take()...)
		}
		f.run()
	}
	return sent
}

// routed is the oracle: whether the connection is to reach a backend, and what of its bytes is to arrive there.
func (f *passFuzz) routed(in []byte) (pass bool, payload []byte) {
	if f.mode&passHeader != 0 {
		_, n, err := proxyproto.Parse(in, 0)
		if n == 0 || err != nil {
			return false, nil
		}
		in = in[n:]
	}
	if f.mode&passTLS != 0 {
		h, err := new(clienthello.Peeker).Parse(in)
		if err != nil || string(h.ServerName) != "a.test" && !bytes.HasSuffix(h.ServerName, []byte(".a.test")) {
			return false, nil
		}
	}
	return true, in
}

func (f *passFuzz) check(client *memtransport.Peer, sent int) {
	pass, payload := f.routed(f.front[:sent])
	switch {
	case f.server == nil && pass && !f.reset && f.mode&passRefuse == 0:
		f.t.Fatalf("no backend gets %q", f.front)
	case f.server == nil:
		if len(f.got) > 0 && (len(f.got) > 7 || f.got[0] != 21 || f.mode&passTLS == 0) {
			f.t.Errorf("the client got %q, no alert", f.got)
		}
		return
	case !pass:
		f.t.Fatalf("a backend gets %q of %q", f.arrived, f.front)
	}
	if f.mode&passSend != 0 {
		h, n, err := proxyproto.Parse(f.arrived, 0)
		if err != nil || n == 0 && !f.reset || n > 0 && h.Version != f.to.ProxyHeader.Version {
			f.t.Fatalf("%+v %d %v: %q", h, n, err, f.arrived)
		}
		if f.arrived = f.arrived[n:]; n == 0 { // a reset came within the header
			f.arrived = nil
		}
	}
	if !bytes.HasPrefix(payload, f.arrived) || !bytes.HasPrefix(f.answered, f.got) {
		f.t.Errorf("arrived %q of %q, and back %q of %q", f.arrived, payload, f.got, f.answered)
	}
	if !f.reset && (len(f.arrived) != len(payload) || len(f.got) != len(f.answered) || client.Reset || f.server.Reset) {
		f.t.Errorf("arrived %d of %d bytes, and back %d of %d; resets %v %v", len(f.arrived), len(payload), len(f.got), len(f.answered), client.Reset, f.server.Reset)
	}
	if f.reset && (!client.Ended || !f.server.Ended) {
		f.t.Errorf("a reset of one side leaves the other open: %v %v", client.Ended, f.server.Ended)
	}
}

// Where the client ends its output before the hello, or the header, is complete, nothing is waited for.
func TestPeekEndsWithTheInput(t *testing.T) {
	hello := rawHello(t, &ctls.Config{ServerName: "a.test"})
	for _, header := range []bool{false, true} {
		r := newMemRig(t, func(r *memRig, tree *Tree) {
			ln := r.stream(tree, StreamTLS)
			if header {
				ln.ProxyProtocol = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
			}
		})
		in := hello[:20]
		if header {
			in = []byte("PROXY TCP4 1")
		}
		client := r.connect(memStream)
		client.Write(in)
		r.run()
		if client.Ended {
			t.Fatal("it has ended before")
		}
		client.CloseWrite()
		r.run()
		if !client.Ended {
			t.Error("it goes on")
		}
		r.nothingLeft(client)
	}
}

// A byte in either direction keeps a stream, for longer than its time-out.
func TestPassIsKeptByBytes(t *testing.T) {
	r := newMemRig(t, func(r *memRig, tree *Tree) { r.stream(tree, StreamTCP) })
	r.backend = func(*memtransport.Peer) {}
	client := r.connect(memStream)
	r.run()
	for i := range 6 {
		r.pass(memTimes.Tunnel - time.Second)
		if i%2 == 0 {
			client.Write([]byte("a"))
		} else {
			r.backs[0].Write([]byte("b"))
		}
		r.run()
	}
	if client.Ended || string(r.backs[0].Take()) != "aaa" || string(client.Take()) != "bbb" {
		t.Error("it has ended")
	}
	r.pass(memTimes.Tunnel + time.Second)
	if !client.Reset || !r.backs[0].Reset {
		t.Error("it goes on")
	}
	r.nothingLeft(client)
}

// A stream ends by its time-outs, each by its own.
func TestPassTimesOut(t *testing.T) {
	hello := rawHello(t, &ctls.Config{ServerName: "a.test"})
	for _, c := range []struct {
		name  string
		after time.Duration
		begin func(r *memRig, c *memtransport.Peer)
	}{
		{"idle", memTimes.Tunnel, func(r *memRig, c *memtransport.Peer) { c.Write(hello) }},
		{"never established", DefaultConnect, func(r *memRig, c *memtransport.Peer) {
			r.loop.Dialed = func(netip.AddrPort) (func(*memtransport.Peer), error) { return nil, nil }
			c.Write(hello)
		}},
		{"the client takes nothing", memTimes.Write, func(r *memRig, c *memtransport.Peer) {
			c.Window = 10
			c.Write(hello)
			r.run()
			r.backs[0].Write(make([]byte, 100))
		}},
		{"the client takes nothing of much", memTimes.Write, func(r *memRig, c *memtransport.Peer) {
			c.Window = 10
			c.Write(hello)
			r.run()
			r.backs[0].Write(make([]byte, 10_000))
		}},
		{"the backend takes nothing", memTimes.Write, func(r *memRig, c *memtransport.Peer) {
			r.backend = func(p *memtransport.Peer) { p.Window = 10 }
			c.Write(hello)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newMemRig(t, func(r *memRig, tree *Tree) { r.stream(tree, StreamTLS).Timeouts.Handshake = 2 * time.Second })
			r.backend = func(*memtransport.Peer) {}
			client := r.connect(memStream)
			c.begin(r, client)
			r.run()
			r.pass(c.after - time.Second)
			if client.Ended {
				t.Fatal("it has ended before")
			}
			r.pass(2 * time.Second)
			if !client.Ended || len(r.backs) > 0 && !r.backs[0].Reset {
				t.Error("it goes on")
			}
			r.nothingLeft(client)
		})
	}
}
