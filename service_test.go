package millrace

import (
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/socket"
)

func TestAServiceClaimsItsAddressesAndTheirNeighbours(t *testing.T) {
	a, b, closeBoth := pairOf(t)
	defer closeBoth()
	s := Service(a)
	if len(s.Handlers) != len(a.Group().Hosts) || !s.Entered || !s.Fallback {
		t.Errorf("service %+v", s)
	}
	rules := s.Claims()
	for _, addr := range a.Group().Hosts[0].IP.Addrs() {
		for _, want := range []pmd.Rule{{Addr: addr.Prefix.Addr()}, {Addr: addr.Prefix.Addr(), Kind: pmd.Neighbor}} {
			if !slices.Contains(rules, want) {
				t.Errorf("claims %v lack %v", rules, want)
			}
		}
	}
	if len(rules) == 0 || slices.Equal(rules, Service(b).Claims()) {
		t.Errorf("claims %v", rules)
	}
}

// TestServiceShutdownDelivers closes a connection with most of its data unsent, and has the node's hook end the stack.
func TestServiceShutdownDelivers(t *testing.T) {
	a, b, closeBoth := pairOf(t)
	defer closeBoth()
	addr := b.Group().Hosts[0].IP.Addrs()[0].Prefix.Addr()
	l, err := b.Listen("tcp", netip.AddrPortFrom(addr, 80).String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	const size = 200_000
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	got := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, s)
		_ = s.Close()
		got <- n
	}()
	Service(a).Shutdown()
	if n := <-got; n != size {
		t.Errorf("%d of %d bytes came", n, size)
	}
}

func TestMetricsAreNamedAfterTheFieldsOfStats(t *testing.T) {
	a, _, closeBoth := pairOf(t)
	defer closeBoth()
	r := metrics.NewRegistry(metrics.Build{})
	r.Add(Service(a).Metrics)
	series, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, s := range series {
		text.WriteString(s.String())
	}
	for _, want := range []string{"millrace_tcp_retransmits_total 0\n", "millrace_tcp_conns 0\n", "millrace_tcp_memory ", "millrace_udp_sent_total ", `millrace_udp_dropped_total{reason="no_socket"} 0`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	for name, want := range map[string]string{"BytesIn": "bytes_in", "TimeWait": "time_wait", "Conns": "conns", "KeepAlive": "keep_alive"} {
		if got := socket.SnakeCase(name); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
}

// pairOf returns two stacks with a link between them.
func pairOf(t *testing.T) (a, b *socket.Stack, closeBoth func()) {
	t.Helper()
	a, b, err := socket.Pair(netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("198.18.0.2/24"))
	if err != nil {
		t.Fatal(err)
	}
	return a, b, func() {
		for _, s := range []*socket.Stack{a, b} {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
