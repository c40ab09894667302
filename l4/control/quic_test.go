package control

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/l4/quiclb"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
)

const quicConfig = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1]
table: {size: 1024}
services:
  - name: h3
    protocol: udp
    %s
    address: 198.18.1.1:443
    quic: {rotation: 1, server_id_length: 2, nonce_length: %d%s}
    backends:
      - {name: b1, address: 198.18.2.11%[4]s, server_id: "0a01"}
      - {name: b2, address: 198.18.2.12%[4]s, server_id: "0a02"%[5]s}
      - {name: b3, address: 198.18.2.13%[4]s, server_id: "0a03"}
`

const quicKey = `, key: "8f95f09245765f80256934e50c66207f"`

// cids makes connection IDs as the backends do.
type cids struct {
	codec *quiclb.Codec
	nonce int
}

func newCids(t *testing.T, w *world) *cids {
	t.Helper()
	q := w.g.cfg.Services[0].QUIC
	codec, err := quiclb.New(quiclb.Config{Rotation: q.Rotation, ServerID: q.ServerID, Nonce: q.Nonce, Key: q.Key})
	if err != nil {
		t.Fatal(err)
	}
	return &cids{codec: codec, nonce: q.Nonce}
}

// of returns a new connection ID of a backend, 1 to 3.
func (c *cids) of(t *testing.T, backend, n int) []byte {
	t.Helper()
	nonce := make([]byte, c.nonce)
	nonce[0], nonce[1] = byte(n), byte(n>>8)
	id, err := c.codec.Encode(nil, quiclb.NewServerID([]byte{10, byte(backend)}), nonce)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// quic returns a datagram with a QUIC packet: of the short form, or of the long one.
func quic(src string, long bool, dcid []byte) []byte {
	head := string([]byte{0x40}) + string(dcid)
	if long {
		head = string([]byte{0xc0, 0, 0, 0, 1, byte(len(dcid))}) + string(dcid) + "\x00"
	}
	s := client(src, "198.18.1.1:443", "")
	s.payload = head + "ciphertext"
	return s.bytes()
}

// to returns the backend that a packet goes to: the last octet of its address, less 10.
func (w *world) to(p []byte) int {
	w.t.Helper()
	var host int
	out := w.expect(0, p, 1)
	a := flowOf(out).dst.Addr()
	if a == netip.MustParseAddr("198.18.1.1") { // l2: told by the link address
		host = int(flowOf(out).dstMAC[5])
	} else {
		b := a.As4()
		host = int(b[3])
	}
	return host - 10
}

// quicWorlds runs a test in NAT and in a direct mode, with and without encryption.
func quicWorlds(t *testing.T, state string, f func(t *testing.T, w *world, c *cids)) {
	for _, mode := range []struct{ name, keys, port string }{{"nat", "", ":4433"}, {"l2", "mode: l2", ""}} {
		for _, key := range []struct {
			name, key string
			nonce     int
		}{{"plain", "", 6}, {"four passes", quicKey, 6}, {"single pass", quicKey, 14}} {
			t.Run(mode.name+" "+key.name, func(t *testing.T) {
				cfg := parse(t, fmt.Sprintf(quicConfig, mode.keys, key.nonce, key.key, mode.port, state))
				hops := nexthop.Static{}
				for a := range hopsOf(cfg) {
					b := a.As4()
					hops[a] = nexthop.Hop{MAC: [6]byte{2, 0, 0, 0, 0, b[3]}, Dev: 1, State: nexthop.Ready}
				}
				w := newWorldWith(t, cfg, hops)
				f(t, w, newCids(t, w))
			})
		}
	}
}

func TestAQUICConnectionStaysWithItsServerWhenTheClientMoves(t *testing.T) {
	quicWorlds(t, "", func(t *testing.T, w *world, c *cids) {
		for n := range 50 {
			home := fmt.Sprintf("198.18.0.9:%d", 2000+n)
			server := w.to(quic(home, true, []byte(fmt.Sprintf("chosen-%d", n)))) // Initial
			if again := w.to(quic(home, true, []byte(fmt.Sprintf("chosen-%d", n)))); again != server {
				t.Fatal("an Initial sent again went elsewhere")
			}
			own := c.of(t, server, n)
			for _, src := range []string{home, fmt.Sprintf("192.0.2.7:%d", 3000+n), fmt.Sprintf("198.18.0.77:%d", 4000+n), home} {
				if got := w.to(quic(src, false, c.of(t, server, n+100))); got != server {
					t.Fatalf("from %s it went to %d, not to %d", src, got, server)
				}
				if got := w.to(quic(src, true, own)); got != server { // Handshake
					t.Fatalf("from %s a long header went to %d, not to %d", src, got, server)
				}
			}
		}
	})
}

func TestTheConnectionIDWinsOverTheTable(t *testing.T) {
	quicWorlds(t, "", func(t *testing.T, w *world, c *cids) {
		for n, server := range []int{1, 2, 3, 2, 1, 3, 3} { // one client's address and port
			if got := w.to(quic("198.18.0.9:2000", false, c.of(t, server, n))); got != server {
				t.Errorf("went to %d, not to %d", got, server)
			}
		}
		if n := w.h.Connections(); n != 1 {
			t.Errorf("%d connections of one client's port", n)
		}
	})
}

func TestADrainingServerKeepsItsQUICConnections(t *testing.T) {
	quicWorlds(t, ", state: draining", func(t *testing.T, w *world, c *cids) {
		for n := range 20 {
			src := fmt.Sprintf("198.18.0.9:%d", 2000+n)
			if got := w.to(quic(src, false, c.of(t, 2, n))); got != 2 {
				t.Errorf("went to %d", got)
			}
			if got := w.to(quic(fmt.Sprintf("198.18.0.8:%d", 2000+n), true, []byte("chosen"))); got == 2 {
				t.Error("a new connection went to a draining server")
			}
		}
	})
}

func TestServersThatAreGoneAreNotFollowed(t *testing.T) {
	quicWorlds(t, ", state: inactive", func(t *testing.T, w *world, c *cids) {
		src := "198.18.0.9:2000"
		first := w.to(quic(src, true, []byte("chosen")))
		for _, id := range [][]byte{
			c.of(t, 2, 1),                // inactive
			c.of(t, 9, 1),                // nobody's
			{0xe0, 1, 2, 3, 4, 5, 6, 7},  // rotation 7: unroutable
			{0x00, 10, 1, 3, 4, 5, 6, 7}, // another rotation
			{0x20},                       // too short
			{},
		} {
			for _, long := range []bool{false, true} {
				if got := w.to(quic(src, long, id)); got != first {
					t.Errorf("%x went to %d, not to %d", id, got, first)
				}
			}
		}
	})
}

func TestADatagramThatIsNoQUICGoesByItsAddress(t *testing.T) {
	quicWorlds(t, "", func(t *testing.T, w *world, c *cids) {
		for _, payload := range []string{"", "\xc0", "\xc0\x00\x00\x00\x01\xff", strings.Repeat("\xff", 9)} {
			s := client("198.18.0.9:2000", "198.18.1.1:443", "")
			s.payload = payload
			w.to(s.bytes())
		}
	})
}

// What pads a short frame is no connection ID.
func TestPaddingIsNotRead(t *testing.T) {
	quicWorlds(t, "", func(t *testing.T, w *world, c *cids) {
		s := client("198.18.0.9:2000", "198.18.1.1:443", "")
		s.payload = "\x40"
		first := w.to(s.bytes())
		for server := 1; server <= 3; server++ {
			padded := append(s.bytes()[:14+20+8+len(s.payload)], c.of(t, server, 1)...)
			if got := w.to(padded); got != first {
				t.Errorf("padding led to %d", got)
			}
		}
	})
}

func TestFollowingConnectionIDsAllocatesNothing(t *testing.T) {
	quicWorlds(t, "", func(t *testing.T, w *world, c *cids) {
		p := quic("198.18.0.9:2000", false, c.of(t, 1, 1))
		w.to(p)
		b := w.batch(0, p)
		w.engine.Submit(b)
		w.engine.Poll(make([]*packet.Batch, 1))
		fresh := b.D[0]
		if n := testing.AllocsPerRun(100, func() {
			copy(w.arena.Mem[fresh.Off:], p)
			b.D[0] = fresh
			w.h.Handle(w.now, b)
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
		if b.D[0].Verdict != packet.Forward {
			t.Error(b.D[0].Verdict)
		}
	})
}

// The frame of a later fragment has no UDP header. Were the octets read that lie where one would be in a
// frame without headers, this client's link address would name server 2.
func TestALaterFragmentIsNotReadForAConnectionID(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(quicConfig, "", 6, "", ":4433", ""))
	misleading := [6]byte{2, 0, 0x40, 0x20, 0x0a, 0x02}
	c := newCids(t, w)
	s := client("198.18.0.9:2000", "198.18.1.1:443", "")
	s.payload = "\x40" + string(c.of(t, 1, 7)) + strings.Repeat("x", 100)
	for i, f := range split(s.bytes(), 64, 1) {
		copy(f[6:], misleading[:])
		if got := w.to4(f); got != 1 {
			t.Errorf("fragment %d went to server %d", i, got)
		}
	}
}

// to4 is to for a packet that may have no ports.
func (w *world) to4(p []byte) int {
	w.t.Helper()
	return int(w.expect(0, p, 1)[14+19]) - 10
}
