package proxy

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/ratelimit"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// limited is a rig whose rule has a limit.
func limited(t testing.TB, key RateKey, opt ratelimit.Options) (*memRig, *RateLimit) {
	t.Helper()
	l := NewRateLimit("l", key, opt, 1)
	return newMemRig(t, func(r *memRig, _ *Tree) { r.rule.Guard = &Guard{Limits: []*RateLimit{l}, Counts: NewGuardCounts(1)} }), l
}

// TestRequestsAreGivenBackEvenly in virtual time, and clients with HTTP/1.1 keep their connection when they are refused.
func TestRequestsAreGivenBackEvenly(t *testing.T) {
	r, l := limited(t, RateKey{All: true}, ratelimit.Options{Requests: 10, Interval: time.Second, Burst: 2, Keys: 1})
	c := r.connect(memHTTP1)
	ask := func() string {
		c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
		r.run()
		return string(c.Take())
	}
	for i, step := range []struct {
		wait   time.Duration
		status string
		after  string
	}{
		{0, "200", ""},
		{0, "200", ""},
		{0, "429", "retry-after: 1\r\n"},
		{90 * time.Millisecond, "429", "retry-after: 1\r\n"},
		{20 * time.Millisecond, "200", ""},
		{0, "429", "retry-after: 1\r\n"},
		{time.Second, "200", ""},
		{0, "200", ""},
		{0, "429", "ratelimit-policy: \"l\";q=10;w=1\r\nratelimit: \"l\";r=0;t=1\r\n"},
	} {
		r.pass(step.wait)
		if got := ask(); !strings.HasPrefix(got, "HTTP/1.1 "+step.status+" ") || !strings.Contains(got, step.after) {
			t.Errorf("request %d: %q, want %s and %q", i, got, step.status, step.after)
		}
	}
	if got := l.Counts(); got != [RateCounts]uint64{RateAllowed: 5, RateRefused: 4} {
		t.Errorf("%v", got)
	}
	r.nothingLeft(c)
}

func TestThePrefixOfAnAddressMakesAClient(t *testing.T) {
	for _, bits := range []int{1, 7, 8, 9, 20, 24, 31, 32, 48, 63, 64, 65, 127, 128} {
		l := NewRateLimit("l", RateKey{Prefix4: min(bits, 32), Prefix6: bits}, ratelimit.Options{Requests: 1, Interval: time.Second, Keys: 1}, 1)
		for _, s := range []string{"192.0.2.77", "255.255.255.255", "::ffff:192.0.2.77", "2001:db8:1:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"} {
			a := netip.MustParseAddr(s).Unmap()
			n := bits
			if a.Is4() {
				n = min(bits, 32)
			}
			p, err := a.Prefix(n)
			must(t, err)
			if got, want := l.prefixOf(netip.MustParseAddr(s)), p.Addr().As16(); got != want {
				t.Errorf("%s/%d: %x, want %x", s, bits, got, want)
			}
		}
	}
}

// TestKeysOfRequestsAreApart: equal parts count together, others and other kinds of parts do not, and one that is missing counts by the
// client. Nothing is allocated.
func TestKeysOfRequestsAreApart(t *testing.T) {
	src := func(value, client string) *rewrite.Source {
		s := &rewrite.Source{Path: "/" + value, Client: netip.MustParseAddr(client)}
		if value != "" {
			s.Fields, s.Query = []semantics.Field{{Name: "x-key", Value: value}, {Name: "cookie", Value: "x-key=" + value}}, "?x-key="+value
		}
		return s
	}
	for _, by := range []rewrite.KeyBy{rewrite.ByHeader, rewrite.ByCookie, rewrite.ByQuery, rewrite.ByPath, rewrite.ByClient} {
		l := NewRateLimit("l", RateKey{Key: rewrite.Key{By: by, Name: "x-key"}, Prefix4: 24, Prefix6: 64}, ratelimit.Options{Requests: 1, Interval: time.Second, Keys: 1}, 1)
		key := func(value, client string) uint64 { return l.keyOf(nil, src(value, client)) }
		same, other := key("a", "192.0.2.1") == key("a", "198.18.0.1"), key("a", "192.0.2.1") == key("b", "192.0.2.1")
		if same != (by != rewrite.ByClient) || other != (by == rewrite.ByClient) {
			t.Errorf("%d: of other clients %v, with another value %v", by, same, other)
		}
		if by != rewrite.ByPath && (key("", "192.0.2.1") != key("", "192.0.2.200") || key("", "192.0.2.1") == key("", "192.0.3.1")) {
			t.Errorf("%d: clients of a prefix do not count together, or others do", by)
		}
		s := src("a", "192.0.2.1")
		if n := testing.AllocsPerRun(100, func() { l.keyOf(nil, s) }); n != 0 {
			t.Errorf("%d: %v allocations", by, n)
		}
	}
}

// BenchmarkLimitedRequest is BenchmarkRequest/HTTP/1.1 with a limit by the client's address, and among a million keys.
func BenchmarkLimitedRequest(b *testing.B) {
	request := []byte("GET /bytes/128 HTTP/1.1\r\nhost: bench.example\r\nuser-agent: bench\r\naccept: */*\r\n\r\n")
	r := newBenchRig(b)
	l := NewRateLimit("l", RateKey{Prefix4: 32, Prefix6: 64}, ratelimit.Options{Requests: 1_000_000, Interval: time.Second, Keys: 1_000_000}, 1)
	r.rule.Guard = &Guard{Limits: []*RateLimit{l}, Counts: NewGuardCounts(1)}
	var clients []*memtransport.Peer
	for range benchClients {
		clients = append(clients, r.connect(memHTTP1))
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		clients[n%benchClients].Write(request)
		if n%benchClients == benchClients-1 {
			r.run()
			for _, c := range clients {
				if got := c.Take(); !bytes.HasSuffix(got, benchResponse[len(benchResponse)-128:]) {
					b.Fatalf("%q", got)
				}
			}
		}
	}
}
