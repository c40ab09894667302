package statesync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/l4/datapath"
)

func record(i int) datapath.Record {
	r := datapath.Record{
		Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 4000),
		VIP:    netip.MustParseAddrPort("198.18.1.1:80"), Target: netip.MustParseAddrPort("198.18.3.2:8080"),
		Source: netip.MustParseAddrPort("198.18.2.1:1055"), Proto: 6, State: datapath.RecordEstablished, Idle: 1500 * time.Millisecond,
	}
	return r
}

// records are one of each form.
func records() []datapath.Record {
	a := record(1)
	client := a
	client.Source = netip.AddrPortFrom(a.Client.Addr(), 4001)
	six := datapath.Record{
		Client: netip.MustParseAddrPort("[2001:db8::2]:4000"), VIP: netip.MustParseAddrPort("[2001:db8:1::1]:80"), Target: netip.MustParseAddrPort("[2001:db8:3::2]:8080"),
		Source: netip.MustParseAddrPort("[2001:db8:2::1]:1055"), Proto: 17, State: datapath.RecordUDP, Idle: time.Hour,
	}
	direct := a
	direct.Target, direct.Source, direct.FINs, direct.State = netip.MustParseAddrPort("[2001:db8:3::2]:0"), netip.AddrPort{}, 3, datapath.RecordClosing
	return []datapath.Record{a, client, six, direct}
}

func TestRecordsReadAsWritten(t *testing.T) {
	var b []byte
	for _, r := range records() {
		b = appendRecord(b, &r, version)
	}
	if got, err := parseRecords(nil, b, version); err != nil || !reflect.DeepEqual(got, records()) {
		t.Errorf("%v: %+v", err, got)
	}
	for n := range b {
		if got, err := parseRecords(nil, b[:n], version); err == nil && len(appendAll(got)) != n {
			t.Errorf("%d of %d bytes are %d records", n, len(b), len(got))
		}
	}
}

// A record that no gateway writes is refused, so that a later version is free to give it a meaning.
func TestRecordsOfNoGatewayAreRefused(t *testing.T) {
	of := func(i int) []byte { r := records()[i]; return appendRecord(nil, &r, version) }
	const flags, client, target = 0, 7, 7 + 2*6 // offsets; of the backend with IPv4
	loose, both := of(0), of(3)
	loose[flags] |= flagLoose
	both[flags] |= flagSNAT
	both = append(both, make([]byte, 16)...)
	noPort := of(1)
	noPort[target+4], noPort[target+5] = 0, 0
	port := of(3)
	port[len(port)-1] = 1
	mapped := of(2)
	a := netip.MustParseAddr("::ffff:198.18.0.9").As16()
	copy(mapped[client:], a[:])
	for name, b := range map[string][]byte{
		"loose without windows": loose, "direct and SNAT": both, "a backend without port": noPort, "a direct one with a port": port, "IPv4 in IPv6": mapped,
	} {
		if r, _, err := parseRecord(b, version); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// An idle time that has no place in a record is the nearest that has.
func TestIdleTimesOfRecordsAreBounded(t *testing.T) {
	for idle, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, 1500 * time.Millisecond: 1500 * time.Millisecond, 100 * 24 * time.Hour: (1<<32 - 1) * time.Millisecond,
	} {
		r := record(1)
		r.Idle = idle
		if got, _, err := parseRecord(appendRecord(nil, &r, version), version); err != nil || got.Idle != want {
			t.Errorf("%v is read as %v, want %v: %v", idle, got.Idle, want, err)
		}
	}
}

func appendAll(list []datapath.Record) (b []byte) {
	for i := range list {
		b = appendRecord(b, &list[i], version)
	}
	return b
}

// What the parser takes is written again as it was.
func FuzzRecord(f *testing.F) {
	for _, r := range records() {
		f.Add(appendRecord(nil, &r, version))
	}
	f.Add([]byte{0, 2, 6, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := parseRecord(b, version)
		if err != nil {
			return
		}
		again := appendRecord(nil, &r, version)
		other, _, err := parseRecord(again, version)
		if err != nil || other != r || len(again) > len(b)-len(rest) {
			t.Errorf("%+v is read again as %+v: %v", r, other, err)
		}
	})
}

// memory is a Table.
type memory struct {
	mu       sync.Mutex
	changed  []datapath.Record
	lost     bool
	all      []datapath.Record
	imported map[netip.AddrPort]datapath.Record
	block    chan bool
}

func (m *memory) Changes(yield func(*datapath.Record) bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := m.lost
	m.lost = false
	for i := range m.changed {
		if !yield(&m.changed[i]) {
			break
		}
	}
	m.changed = nil
	return lost
}

func (m *memory) Page(at int64, yield func(*datapath.Record)) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := min(int(at)+100, len(m.all))
	for i := int(at); i < end; i++ {
		yield(&m.all[i])
	}
	if end == len(m.all) {
		return -1
	}
	return int64(end)
}

func (m *memory) Import(list []datapath.Record) {
	if m.block != nil {
		<-m.block
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range list {
		m.imported[r.Client] = r
	}
}

func (m *memory) known() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.imported)
}

// side is one of two peers on loopback.
type side struct {
	*memory
	peer   *Peer
	events chan Event
	stop   func()
}

func open(t *testing.T, at, peer netip.AddrPort, index uint8, key byte) *side {
	t.Helper()
	return openAs(t, at, peer, Agreement{Index: index, Loops: 2, First: 1024, Last: 65535}, key)
}

func openAs(t *testing.T, at, peer netip.AddrPort, as Agreement, key byte) *side {
	t.Helper()
	s := &side{memory: &memory{imported: map[netip.AddrPort]datapath.Record{}}, events: make(chan Event, 1000)}
	p, err := Listen(t.Context(), Config{
		Listen: at, Peer: peer, Key: bytes.Repeat([]byte{key}, 32), Agreement: as,
		Table: s.memory, OnChange: func(e Event) { s.events <- e },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	s.peer, s.stop = p, func() { stop(); <-done }
	t.Cleanup(s.stop)
	return s
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// All connections come first, then changes; when changes were lost all come again; a peer that is started again gets all.
func TestAPeerGetsAllConnectionsAndThenChanges(t *testing.T) {
	at, other := testport.Hold(t), testport.Hold(t)
	a, b := open(t, at, other, 0, 1), open(t, other, at, 1, 1)
	until(t, "the streams are up", func() bool { return a.peer.Status().Synced && b.peer.Status().Synced })
	a.mu.Lock()
	for i := range 1000 {
		a.all = append(a.all, record(i))
	}
	a.changed = slices.Clone(a.all[:5])
	a.mu.Unlock()
	until(t, "changes", func() bool { return b.known() == 5 })
	a.mu.Lock()
	a.lost = true
	a.mu.Unlock()
	until(t, "all, after a loss", func() bool { return b.known() == 1000 })
	b.stop()
	b = open(t, other, at, 1, 1)
	until(t, "all, after a restart", func() bool { return b.known() == 1000 && b.peer.Status().Synced })
	until(t, "the books agree", func() bool { return b.peer.Status().ReceivedRecords == 1000 })
	if got := b.imported[a.all[7].Client]; got != a.all[7] {
		t.Errorf("received %+v, sent %+v", got, a.all[7])
	}
	st := a.peer.Status()
	if st.SentRecords != 5+1000+1000 || st.Transfers < 3 || st.LagSeconds < 0 {
		t.Errorf("%+v", st)
	}
}

// Gateways that do not fit say why, and exchange nothing.
func TestPeersThatDoNotFitExchangeNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		as   Agreement
		key  byte
		want string
	}{
		{"another key", Agreement{1, 2, 1024, 65535}, 2, "another key"},
		{"the same index", Agreement{0, 2, 1024, 65535}, 1, "both gateways have sync.index 0"},
		{"more loops", Agreement{1, 4, 1024, 65535}, 1, "loops (devices[].queues), this gateway"},
		{"another first port", Agreement{1, 2, 1025, 65535}, 1, "the peer has snat_ports 102"},
		{"another last port", Agreement{1, 2, 1024, 65534}, 1, "-6553"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at, other := testport.Hold(t), testport.Hold(t)
			a, b := open(t, at, other, 0, 1), openAs(t, other, at, c.as, c.key)
			a.mu.Lock()
			a.all = records()
			a.mu.Unlock()
			for _, s := range []*side{a, b} {
				for end := time.After(20 * time.Second); ; {
					select {
					case e := <-s.events:
						if e.Up {
							t.Fatalf("%+v", e)
						}
						if strings.Contains(e.Cause.Error(), c.want) {
							goto said
						}
					case <-end:
						t.Fatalf("none says %q", c.want)
					}
				}
			said:
			}
			if n := a.known() + b.known(); n != 0 {
				t.Errorf("%d records are exchanged", n)
			}
		})
	}
}

// A stream that is recorded and sent again, or changed by one bit, is refused.
func TestFramesAreAuthenticated(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	pair := func() (a, b *session, wire *tap) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		x, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		y, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		wire = &tap{Conn: x}
		t.Cleanup(func() { x.Close(); y.Close() })
		done := make(chan error, 1)
		go func() {
			var err error
			b, err = newSession(y, key, false, version)
			done <- err
		}()
		a, err = newSession(wire, key, true, version)
		if err := errors.Join(err, <-done); err != nil {
			t.Fatal(err)
		}
		return a, b, wire
	}
	for _, c := range []struct {
		name   string
		change func(frame []byte) []byte
	}{
		{"as sent", nil},
		{"a bit", func(f []byte) []byte { f[5] ^= 1; return f }},
		{"twice", func(f []byte) []byte { return append(slices.Clone(f), f...) }},
		{"empty", func([]byte) []byte { return []byte{0, 0} }},
		{"too long", func([]byte) []byte { return []byte{255, 255} }},
	} {
		a, b, wire := pair()
		wire.change = c.change
		go a.write([]byte{typeHeartbeat})
		_, err := b.read()
		if c.name == "twice" && err == nil {
			_, err = b.read()
		}
		if (err == nil) != (c.change == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A recorded stream fits no other: the random values differ.
	a, _, wire := pair()
	var frame []byte
	wire.change = func(f []byte) []byte { frame = slices.Clone(f); return f[:0] }
	a.write([]byte{typeHeartbeat})
	_, b, wire := pair()
	go wire.Conn.Write(frame)
	if _, err := b.read(); !errors.Is(err, ErrKey) {
		t.Errorf("a frame of another stream: %v", err)
	}
}

// tap changes what is written.
type tap struct {
	net.Conn
	change func([]byte) []byte
}

func (c *tap) Write(b []byte) (int, error) {
	if c.change == nil {
		return c.Conn.Write(b)
	}
	_, err := c.Conn.Write(c.change(slices.Clone(b)))
	return len(b), err
}

// Strangers that connect and say nothing, or something else, keep nobody out.
func TestStrangersDoNotDisturb(t *testing.T) {
	at, other := testport.Hold(t), testport.Hold(t)
	a := open(t, at, other, 0, 1)
	for i := range 3 {
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i > 0 {
			io.WriteString(c, fmt.Sprintf("GET / HTTP/1.1\r\nHost: %d and some bytes more than a hello\r\n\r\n", i))
		}
	}
	b := open(t, other, at, 1, 1)
	until(t, "the streams are up", func() bool { return a.peer.Status().Synced && b.peer.Status().Synced })
}

func TestThePausesBeginAnewAfterAStreamOfUse(t *testing.T) {
	for _, c := range []struct{ due, lived, want time.Duration }{
		{redialLast, 0, redialLast}, {redialLast, deadAfter, redialLast}, {redialLast, deadAfter + 1, redialFirst}, {redialFirst, 0, redialFirst},
	} {
		if got := pauseAfter(c.due, c.lived); got != c.want {
			t.Errorf("after %v with %v due: %v, want %v", c.lived, c.due, got, c.want)
		}
	}
}
