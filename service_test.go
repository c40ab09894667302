package millrace

import (
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
