package bgp

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// router is the other end of the sessions of a speaker, in virtual time and in memory.
type router struct {
	t       *testing.T
	s       *Speaker
	log     *lockedLog
	dials   chan net.Conn
	mu      sync.Mutex
	dialled []time.Time
	refused atomic.Bool // dials
	stop    func()

	conn net.Conn
	in   reader
}

type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// addressed is an end of a pipe with an address.
type addressed struct{ net.Conn }

func (addressed) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40000} }

var (
	peerAddr = netip.MustParseAddr("192.0.2.2")
	vip4     = netip.MustParsePrefix("198.18.1.1/32")
	vip6     = netip.MustParsePrefix("2001:db8:1::1/128")
)

func testPeer() Peer {
	return Peer{
		Address: peerAddr, Port: 179, AS: 65000, HoldTime: 9 * time.Second, ConnectRetry: 5 * time.Second,
		Families: []Family{IPv4, IPv6}, NextHop6: netip.MustParseAddr("2001:db8::1"), MaxPrefixes: 1000,
	}
}

func testConfig(peers ...Peer) Config {
	return Config{AS: 64512, RouterID: netip.MustParseAddr("192.0.2.1"), Drain: 2 * time.Second, Peers: peers}
}

// with runs a test with a speaker and a router in virtual time.
func with(t *testing.T, c Config, f func(r *router)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &router{t: t, dials: make(chan net.Conn, 16), log: &lockedLog{}}
		r.s = New(c, Options{Log: slog.New(slog.NewTextHandler(r.log, nil)), Dial: func(context.Context, *Peer) (net.Conn, error) {
			r.mu.Lock()
			r.dialled = append(r.dialled, time.Now())
			r.mu.Unlock()
			if r.refused.Load() {
				return nil, fmt.Errorf("connection refused")
			}
			a, b := net.Pipe()
			r.dials <- b
			return addressed{a}, nil
		}})
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); r.s.Run(ctx) }()
		r.stop = func() {
			if r.conn != nil {
				r.conn.Close()
			}
			for len(r.dials) > 0 {
				(<-r.dials).Close()
			}
			stop()
			<-done
		}
		defer r.stop()
		f(r)
	})
}

// accept takes the next connection, and reads its OPEN.
func (r *router) accept() *open {
	r.t.Helper()
	r.conn = <-r.dials
	r.in = reader{from: r.conn}
	body := r.want(typeOpen)
	o, err := parseOpen(body)
	if err != nil {
		r.t.Fatal(err)
	}
	return o
}

// want reads a message of a type.
func (r *router) want(t messageType) []byte {
	r.t.Helper()
	_ = r.conn.SetReadDeadline(time.Now().Add(time.Hour))
	got, body, err := r.in.next()
	if err != nil {
		r.t.Fatalf("want a message of type %d: %v\n%s", t, err, r.log)
	}
	if got != t {
		r.t.Fatalf("want a message of type %d, got %d: %x\n%s", t, got, body, r.log)
	}
	return slices.Clone(body)
}

// next reads the next message that is not a KEEPALIVE.
func (r *router) next() (messageType, []byte, error) {
	for {
		t, body, err := r.in.next()
		if err != nil || t != typeKeepalive {
			return t, slices.Clone(body), err
		}
	}
}

// send sends bytes. Where the speaker ends the session first, the rest is lost.
func (r *router) send(b []byte) {
	_ = r.conn.SetWriteDeadline(time.Now().Add(time.Minute))
	_, _ = r.conn.Write(b)
}

// routerOpen is the OPEN of a router.
func routerOpen() *open {
	return &open{
		AS: 65000, HoldTime: 90, ID: netip.MustParseAddr("192.0.2.2"), Families: families(0).with(IPv4).with(IPv6), FourAS: true, Refresh: true,
	}
}

// establish brings a session to Established.
func (r *router) establish(o *open) *open {
	r.t.Helper()
	theirs := r.accept()
	r.send(o.append(nil))
	r.want(typeKeepalive)
	r.send(appendKeepalive(nil))
	return theirs
}

// received is the content of an UPDATE of the speaker, as a router reads it.
type received struct {
	change
	attrs map[byte][]byte
}

// wantUpdate reads an UPDATE.
func (r *router) wantUpdate() received {
	r.t.Helper()
	for {
		t, body, err := r.next()
		if err != nil || t != typeUpdate {
			r.t.Fatalf("want an UPDATE, got type %d, %v\n%s", t, err, r.log)
		}
		var u received
		if err := parseUpdate(body, &u.change); err != nil {
			r.t.Fatal(err)
		}
		u.attrs = attributesOf(r.t, body)
		return u
	}
}

// attributesOf splits the attributes of an UPDATE.
func attributesOf(t *testing.T, body []byte) map[byte][]byte {
	t.Helper()
	n := int(binary.BigEndian.Uint16(body))
	body = body[2+n:]
	b, all := body[2:2+int(binary.BigEndian.Uint16(body))], map[byte][]byte{}
	for len(b) > 0 {
		kind, value, rest, ok := attribute(b)
		if !ok {
			t.Fatalf("attributes %x", b)
		}
		all[kind], b = value, rest
	}
	return all
}

// wantEnd reads the markers of both families.
func (r *router) wantEnd() {
	r.t.Helper()
	for range 2 {
		if u := r.wantUpdate(); len(u.announced)+len(u.withdrawn) > 0 {
			r.t.Fatalf("want the end of the routes, got %v", u)
		}
	}
}

// wantNotification reads messages until a NOTIFICATION, which must have this code and subcode.
func (r *router) wantNotification(c code, sub uint8) *Notification {
	r.t.Helper()
	for {
		t, body, err := r.next()
		if err != nil {
			r.t.Fatalf("want a NOTIFICATION %d/%d: %v\n%s", c, sub, err, r.log)
		}
		if t != typeNotification {
			continue
		}
		n := parseNotification(body)
		if n.Code != c || n.Subcode != sub {
			r.t.Fatalf("got NOTIFICATION %d/%d, want %d/%d", n.Code, n.Subcode, c, sub)
		}
		return n
	}
}

// status returns the status of the one peer, after all goroutines have come to rest.
func (r *router) status() PeerStatus {
	synctest.Wait()
	return r.s.Status().Peers[0]
}

// times returns when the speaker has dialled.
func (r *router) times() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.dialled)
}

// since returns how much of the bubble's virtual time has passed.
func (r *router) since(at time.Time) time.Duration {
	now := time.Now()
	return now.Sub(at)
}
