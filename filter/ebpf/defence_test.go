package ebpf

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// packetFrom is a frame with an IP header from a source, behind tags.
func packetFrom(src string, tags int) []byte {
	b := make([]byte, 12, 80)
	copy(b, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1})
	for range tags {
		b = append(b, 0x81, 0, 0, 7)
	}
	a := netip.MustParseAddr(src)
	if a.Is4() {
		b = append(b, 8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0)
		b = append(b, a.AsSlice()...)
		return append(b, append([]byte{198, 18, 0, 9}, make([]byte, 20)...)...)
	}
	b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 64)
	b = append(b, a.AsSlice()...)
	return append(b, make([]byte, 16)...)
}

// defended is a world whose near host runs the defence before a program that counts what passes.
type defended struct {
	*world
	d   *Defence
	out int
}

func newDefended(t testing.TB) *defended {
	t.Helper()
	w := &defended{world: newWorld(t)}
	d, err := w.store.OpenDefence()
	w.ok(err)
	t.Cleanup(func() { d.Close() })
	w.d = d
	w.attach(DefenceObject, XDPOptions{})
	w.load("count.o", "")
	w.do(func() error { _, err := w.store.AttachTC("count/count_in", "eth0", TCOptions{}); return err })
	w.out = packetSocket(t, w.far)
	return w
}

// passed sends n frames and returns how many came through, by the counter behind the defence.
func (w *defended) passed(src string, tags, n int) int {
	w.t.Helper()
	before, _, _ := w.d.droppedByAll()
	seen := w.counter("count/hits", 2)
	f := packetFrom(src, tags)
	for range n {
		if _, err := unix.Write(w.out, f); err != nil {
			w.t.Fatal(err)
		}
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		dropped, _, err := w.d.droppedByAll()
		w.ok(err)
		if got := w.counter("count/hits", 2) - seen; got+dropped-before == uint64(n) {
			return int(got)
		}
	}
	w.t.Fatalf("of %d frames from %s not all passed or were counted as dropped", n, src)
	return 0
}

// droppedByAll adds the first rules up.
func (d *Defence) droppedByAll() (packets, bytes uint64, err error) {
	for rule := range uint32(8) {
		p, b, e := d.Dropped(rule)
		packets, bytes, err = packets+p, bytes+b, errors.Join(err, e)
	}
	return packets, bytes, err
}

func (w *defended) want(src string, tags, n int, what string) {
	w.t.Helper()
	if got := w.passed(src, tags, 20); got != n {
		w.t.Errorf("%s: %d of 20 frames from %s passed, want %d", what, got, src, n)
	}
}

func TestDefenceDropsSources(t *testing.T) {
	w := newDefended(t)
	prefix := netip.MustParsePrefix
	w.want("198.18.7.1", 0, 20, "without verdicts")
	w.ok(w.d.Put(
		Verdict{Prefix: prefix("198.18.7.0/24"), Rule: 1},
		Verdict{Prefix: prefix("2001:db8:7::/48"), Rule: 2},
		Verdict{Prefix: prefix("::ffff:198.18.9.9/128"), Rule: 3},
	))
	w.want("198.18.7.1", 0, 0, "in the prefix")
	w.want("198.18.7.1", 2, 0, "behind two tags")
	w.want("198.18.8.1", 0, 20, "beside the prefix")
	w.want("198.18.9.9", 0, 0, "by an IPv4-mapped prefix")
	w.want("2001:db8:7::1", 1, 0, "IPv6")
	w.want("2001:db8:8::1", 0, 20, "IPv6 beside the prefix")
	for rule, want := range map[uint32]uint64{1: 40, 2: 20, 3: 20, 4: 0} {
		if n, bytes, err := w.d.Dropped(rule); err != nil || n != want || (bytes == 0) != (want == 0) {
			t.Errorf("rule %d dropped %d packets of %d bytes (%v), want %d", rule, n, bytes, err, want)
		}
	}
	again, err := w.store.OpenDefence() // as another process does
	w.ok(err)
	defer again.Close()
	var list []string
	w.ok(again.Verdicts(func(v Verdict) { list = append(list, v.Prefix.String()) }))
	slices.Sort(list)
	if want := []string{"198.18.7.0/24", "198.18.9.9/32", "2001:db8:7::/48"}; !slices.Equal(list, want) {
		t.Errorf("verdicts on %v, want %v", list, want)
	}
	w.ok(again.Remove(prefix("198.18.7.0/24")))
	w.ok(again.Remove(prefix("198.18.7.0/24")))
	w.want("198.18.7.1", 0, 20, "after removal")
	for _, v := range []Verdict{{}, {Prefix: prefix("198.18.0.0/16"), Rule: MaxRules}, {Prefix: prefix("198.18.0.0/16"), For: -1}} {
		if err := w.d.Put(v); !errors.Is(err, ErrValue) {
			t.Errorf("%+v: %v", v, err)
		}
	}
}

// A verdict ends on time without anything being done, and the wider ones below it count again.
func TestVerdictsExpire(t *testing.T) {
	w := newDefended(t)
	host, net24 := netip.MustParsePrefix("198.18.7.1/32"), netip.MustParsePrefix("198.18.7.0/24")
	w.ok(w.d.Put(Verdict{Prefix: host, Rule: 1, For: 300 * time.Millisecond}))
	w.want("198.18.7.1", 0, 0, "before it expires")
	time.Sleep(350 * time.Millisecond)
	w.want("198.18.7.1", 0, 20, "after it has expired")
	w.ok(w.d.Put(Verdict{Prefix: net24, Rule: 2}))
	w.want("198.18.7.1", 0, 0, "by the wider verdict below an expired one")
	n := 0
	w.ok(w.d.Verdicts(func(Verdict) { n++ }))
	if gone, err := w.d.Expire(); gone != 1 || err != nil || n != 1 {
		t.Errorf("%d in force, %d removed, %v", n, gone, err)
	}
	w.want("198.18.7.1", 0, 0, "after the expired one is removed")
}

// Below an expired prefix the next shorter one counts, also where several expired ones lie in each other.
func TestShorterPrefixCountsBelowExpiredOnes(t *testing.T) {
	w := newDefended(t)
	for n, s := range []string{"198.18.7.0/24", "198.18.6.0/23", "198.18.4.0/22", "2001:db8:7::/48", "2001:db8::/32"} {
		w.ok(w.d.Put(Verdict{Prefix: netip.MustParsePrefix(s), Rule: uint32(n + 1), For: time.Millisecond}))
	}
	time.Sleep(50 * time.Millisecond)
	w.want("198.18.7.1", 0, 20, "below expired verdicts alone")
	w.ok(w.d.Put(Verdict{Prefix: netip.MustParsePrefix("198.18.0.0/16"), Rule: 6}, Verdict{Prefix: netip.MustParsePrefix("2001:db8::/31"), Rule: 7}))
	w.want("198.18.7.1", 0, 0, "by the fourth")
	w.want("2001:db8:7::1", 0, 0, "by the third of IPv6")
}

// A burst is counted exactly, and hosts of an IPv6 /64 share the bucket of a prefix of that length.
func TestBurstIsExactAndSharedInA64(t *testing.T) {
	w := newDefended(t)
	w.ok(w.d.Put(
		Verdict{Prefix: netip.MustParsePrefix("198.18.7.1/32"), Rule: 1, Rate: 1, Burst: 3},
		Verdict{Prefix: netip.MustParsePrefix("2001:db8:7::/64"), Rule: 2, Rate: 1, Burst: 10},
	))
	begin := time.Now()
	most := func(n int) int { return n + int(time.Since(begin).Seconds()) }
	if n := w.passed("198.18.7.1", 0, 20); n < 3 || n > most(3) {
		t.Errorf("%d pass a burst of 3", n)
	}
	begin = time.Now()
	if n := w.passed("2001:db8:7::1", 0, 20) + w.passed("2001:db8:7::2", 0, 20); n < 10 || n > most(10) {
		t.Errorf("%d of two hosts pass a burst of 10", n)
	}
}

func TestSourcesAreLimitedEach(t *testing.T) {
	w := newDefended(t)
	w.ok(w.d.Put(Verdict{Prefix: netip.MustParsePrefix("198.18.0.0/16"), Rule: 1, Rate: 10, Burst: 15}))
	for _, src := range []string{"198.18.7.1", "198.18.7.2"} {
		begin := time.Now()
		got := w.passed(src, 0, 200)
		most := 15 + 1 + int(10*time.Since(begin).Seconds())
		if got < 15 || got > most {
			t.Errorf("%d of 200 frames from %s passed, want 15 to %d", got, src, most)
		}
	}
	time.Sleep(500 * time.Millisecond)
	if got := w.passed("198.18.7.1", 0, 50); got < 4 || got > 20 {
		t.Errorf("after half a second %d frames passed, want about 5", got)
	}
}

// The time from a verdict to the first packet that it drops is that of Put: what is sent after it does not pass.
func TestVerdictIsInForceWhenPutReturns(t *testing.T) {
	w := newDefended(t)
	for i := range 100 {
		src := netip.AddrFrom4([4]byte{198, 19, 0, byte(i)})
		w.ok(w.d.Put(Verdict{Prefix: netip.PrefixFrom(src, 32), Rule: 1, For: time.Minute}))
		if _, err := unix.Write(w.out, packetFrom(src.String(), 0)); err != nil {
			t.Fatal(err)
		}
	}
	w.passed("198.18.0.1", 0, 1)
	if n, _, _ := w.d.Dropped(1); n != 100 {
		t.Errorf("%d of 100 packets that followed their verdict were dropped", n)
	}
}

// Beyond the rate the kernel sees no SYN, and its own stack accepts the cookies: connections carry bytes.
func TestSYNsOfAFloodAreAnsweredWithCookies(t *testing.T) {
	w := newDefended(t)
	w.ok(w.far.Do(func() error { return w.store.AttachXDP("count/count_xdp", "eth0", XDPOptions{}) })) // veth takes frames of XDP_TX only so
	w.ok(w.near.Sysctl("net.ipv4.tcp_syncookies", "2"))
	for ns, addrs := range map[*testnet.Namespace][]string{w.near: {"198.18.0.1/24", "2001:db8::1/64"}, w.far: {"198.18.0.2/24", "2001:db8::2/64"}} {
		w.ok(ns.Sysctl("net.ipv6.conf.eth0.disable_ipv6", "0"))
		w.ok(ns.Up("eth0", addrs...))
	}
	for _, addr := range []string{"198.18.0.1", "2001:db8::1"} {
		var l net.Listener
		w.do(func() (err error) { l, err = net.Listen("tcp", net.JoinHostPort(addr, "0")); return err })
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("hello"))
				c.Close()
			}
		}()
		cookies := 0
		talk := func() {
			t.Helper()
			var c net.Conn
			w.ok(w.far.Do(func() (err error) { c, err = net.DialTimeout("tcp", l.Addr().String(), 20*time.Second); return err }))
			defer c.Close()
			if plain(t, c) {
				cookies++
			}
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
				t.Errorf("%s: read %q, %v", addr, b, err)
			}
		}
		before, err := w.d.AnsweredSYNs()
		w.ok(err)
		w.ok(w.d.AssistSYN(0))
		talk()
		if n, _ := w.d.AnsweredSYNs(); n != before {
			t.Errorf("%s: %d SYNs were answered without the assist", addr, n-before)
		}
		w.ok(w.d.AssistSYN(1)) // the first of a second passes, on each CPU
		for range 6 {
			talk()
		}
		if n, err := w.d.AnsweredSYNs(); n < before+uint64(cookies) || cookies < 2 || err != nil {
			t.Errorf("%s: %d SYNs were answered with cookies, %d connections began so, %v", addr, n-before, cookies, err)
		}
		l.Close()
	}
}

// plain reports whether a connection has no timestamps, as one that began with a cookie of XDP has none.
func plain(t testing.TB, c net.Conn) (yes bool) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const timestamps = 1 // TCPI_OPT_TIMESTAMPS
	if err := raw.Control(func(fd uintptr) {
		info, e := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		yes, err = e == nil && info.Options&timestamps == 0, e
	}); err != nil {
		t.Fatal(err)
	}
	return yes
}

// The layouts of Go and C are the same.
func TestDefenceLayouts(t *testing.T) {
	o, err := parseObject(_DefenceBytes)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]int{
		"drop4": {binary.Size(prefixKey4{}), binary.Size(verdictValue{})}, "drop6": {binary.Size(prefixKey6{}), binary.Size(verdictValue{})},
		"front4": {4, binary.Size(frontValue{})}, "exact4": {4, binary.Size(verdictValue{})}, "exact6": {16, binary.Size(verdictValue{})}, "used": {4, 4},
		"counters": {4, binary.Size(ruleCount{})}, "syn": {4, binary.Size(synState{})},
	} {
		if m := o.spec.Maps[name]; int(m.KeySize) != want[0] || int(m.ValueSize) != want[1] {
			t.Errorf("%s: %d and %d bytes, want %v", name, m.KeySize, m.ValueSize, want)
		}
	}
	if n := o.spec.Maps["counters"].MaxEntries; n != MaxRules {
		t.Errorf("%d rules", n)
	}
}
