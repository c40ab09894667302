package rewrite

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/semantics"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestForwardedFields(t *testing.T) {
	proxies := prefixes("192.0.2.0/24", "2001:db8:1::/48")
	outside := []string{"x-forwarded-for: 127.0.0.1", "x-forwarded-proto: https", "x-forwarded-host: evil", "x-forwarded-port: 1", "forwarded: for=evil", "x-real-ip: 127.0.0.1", "accept: */*"}
	for _, x := range []struct {
		name  string
		f     Forwarding
		in    []string
		addr  string
		tls   bool
		host  string
		lines string
	}{
		{"a client", Forwarding{}, nil, "198.51.100.7", false, "a.example", "x-forwarded-for: 198.51.100.7\nx-forwarded-proto: http\nx-forwarded-host: a.example"},
		{"without a host", Forwarding{}, nil, "198.51.100.7", true, "", "x-forwarded-for: 198.51.100.7\nx-forwarded-proto: https"},
		{"a client makes up fields", Forwarding{Trusted: proxies}, outside, "198.51.100.7", true, "a.example", "accept: */*\nx-forwarded-for: 198.51.100.7\nx-forwarded-proto: https\nx-forwarded-host: a.example"},
		{
			"a proxy",
			Forwarding{Trusted: proxies},
			[]string{"x-forwarded-for: 203.0.113.9", "x: y", "x-forwarded-for: 198.51.100.7, 198.51.100.8", "x-forwarded-proto: https", "x-forwarded-host: a.example:8443"},
			"192.0.2.1", false, "inner", "x: y\nx-forwarded-proto: https\nx-forwarded-host: a.example:8443\nx-forwarded-for: 203.0.113.9, 198.51.100.7, 198.51.100.8, 192.0.2.1",
		},
		{"a proxy that says nothing", Forwarding{Trusted: proxies}, []string{"x-forwarded-for: "}, "2001:db8:1::5", false, "a", "x-forwarded-for: 2001:db8:1::5\nx-forwarded-proto: http\nx-forwarded-host: a"},
		{"a mapped address", Forwarding{Trusted: proxies}, []string{"x-forwarded-for: 203.0.113.9"}, "::ffff:192.0.2.1", false, "", "x-forwarded-for: 203.0.113.9, 192.0.2.1\nx-forwarded-proto: http"},
		{"a zone", Forwarding{}, nil, "fe80::1%lo", false, "", "x-forwarded-for: fe80::1\nx-forwarded-proto: http"},

		{"Forwarded", Forwarding{Style: StyleForwarded}, outside, "198.51.100.7", true, "a.example", "accept: */*\nforwarded: for=198.51.100.7;host=a.example;proto=https"},
		{"Forwarded, IPv6 and a port", Forwarding{Style: StyleForwarded}, nil, "2001:db8::7", false, "a.example:81", `forwarded: for="[2001:db8::7]";host="a.example:81";proto=http`},
		{"Forwarded, a proxy", Forwarding{Style: StyleForwarded, Trusted: proxies}, []string{"forwarded: for=_x;by=y", "forwarded: for=198.51.100.7"}, "192.0.2.1", false, "", "forwarded: for=_x;by=y, for=198.51.100.7, for=192.0.2.1;proto=http"},

		{"nothing", Forwarding{Style: StyleNone}, outside, "198.51.100.7", true, "a.example", "accept: */*"},
		{"nothing, a proxy", Forwarding{Style: StyleNone, Trusted: proxies}, outside[:2], "192.0.2.1", true, "a.example", "x-forwarded-for: 127.0.0.1\nx-forwarded-proto: https"},
	} {
		got, _ := x.f.Apply(fieldsOf(x.in...), nil, &Peer{netip.MustParseAddr(x.addr), x.tls, x.host})
		if text(got) != x.lines {
			t.Errorf("%s:\n%s\nwant\n%s", x.name, text(got), x.lines)
		}
	}
}

func TestTheClientBehindProxies(t *testing.T) {
	proxies := prefixes("192.0.2.0/24", "2001:db8:1::/48")
	for _, x := range []struct {
		style Style
		lines []string
		peer  string
		want  string
	}{
		{StyleX, nil, "192.0.2.1", "192.0.2.1"},
		{StyleX, []string{"x-forwarded-for: 198.51.100.7"}, "192.0.2.1", "198.51.100.7"},
		{StyleX, []string{"x-forwarded-for: 198.51.100.7"}, "198.51.100.1", "198.51.100.1"}, // not a proxy of ours
		{StyleX, []string{"x-forwarded-for: 203.0.113.9, 198.51.100.7"}, "192.0.2.1", "198.51.100.7"},
		{StyleX, []string{"x-forwarded-for: 203.0.113.9, 192.0.2.7"}, "192.0.2.1", "203.0.113.9"},
		{StyleX, []string{"x-forwarded-for: 203.0.113.9", "x: y", "x-forwarded-for: 192.0.2.7"}, "192.0.2.1", "203.0.113.9"},
		{StyleX, []string{"x-forwarded-for: 203.0.113.9", "x-forwarded-for: 198.51.100.7"}, "192.0.2.1", "198.51.100.7"},
		{StyleX, []string{"x-forwarded-for: 192.0.2.5, 192.0.2.7"}, "192.0.2.1", "192.0.2.5"},
		{StyleX, []string{"x-forwarded-for: 203.0.113.9, unknown"}, "192.0.2.1", "192.0.2.1"},
		{StyleX, []string{"x-forwarded-for: "}, "192.0.2.1", "192.0.2.1"},
		{StyleX, []string{"x-forwarded-for: 2001:db8::7"}, "::ffff:192.0.2.1", "2001:db8::7"},
		{StyleX, []string{"x-forwarded-for: [2001:db8::7]:4711"}, "192.0.2.1", "2001:db8::7"},
		{StyleX, []string{"x-forwarded-for: 198.51.100.7:4711"}, "192.0.2.1", "198.51.100.7"},
		{StyleX, []string{"forwarded: for=198.51.100.7"}, "192.0.2.1", "192.0.2.1"},
		{StyleForwarded, []string{"forwarded: for=198.51.100.7;proto=http"}, "192.0.2.1", "198.51.100.7"},
		{StyleForwarded, []string{`forwarded: For="[2001:db8::7]:4711"`}, "192.0.2.1", "2001:db8::7"},
		{StyleForwarded, []string{`forwarded: for=198.51.100.7, by=_x; FOR=192.0.2.9 ;host="a,b"`}, "192.0.2.1", "198.51.100.7"},
		{StyleForwarded, []string{`forwarded: for=198.51.100.7, for=_hidden`}, "192.0.2.1", "192.0.2.1"},
		{StyleForwarded, []string{"x-forwarded-for: 198.51.100.7"}, "192.0.2.1", "192.0.2.1"},
	} {
		f := Forwarding{Style: x.style, Trusted: proxies}
		if got := f.Client(fieldsOf(x.lines...), netip.MustParseAddr(x.peer)); got.String() != x.want {
			t.Errorf("style %d, %q from %s: %s, want %s", x.style, x.lines, x.peer, got, x.want)
		}
	}
}

func TestVia(t *testing.T) {
	got, _ := Via(fieldsOf("via: 1.0 fred", "a: b", "via: 1.1 p.example"), nil, "2", "millrace")
	if text(got) != "a: b\nvia: 1.0 fred, 1.1 p.example, 2 millrace" { // the example of RFC 9110 7.6.3, one hop further
		t.Error(text(got))
	}
}

// What one gateway appends, the next one behind it finds, whatever came before; and what it appends is a field value.
func FuzzForwarding(f *testing.F) {
	f.Add("203.0.113.9, 192.0.2.7", "a.example", true)
	f.Add(`for="[2001:db8::7]:1";host="a,b"`, `a"b`, false)
	f.Fuzz(func(t *testing.T, chain, host string, rfc bool) {
		if !semantics.IsValue(chain) || !semantics.IsAuthority(host) {
			return
		}
		name, style := "x-forwarded-for", StyleX
		if rfc {
			name, style = "forwarded", StyleForwarded
		}
		first := Forwarding{Style: style, Trusted: prefixes("198.51.100.0/24")}
		peer := netip.MustParseAddr("198.51.100.7")
		fields, _ := first.Apply([]semantics.Field{{Name: name, Value: chain}}, nil, &Peer{Addr: peer, Authority: host})
		for _, f := range fields {
			if !semantics.IsValue(f.Value) {
				t.Fatalf("%s: %q", f.Name, f.Value)
			}
		}
		if strings.Count(chain, `"`)%2 != 0 { // an open quote takes in what follows
			return
		}
		second := Forwarding{Style: style, Trusted: prefixes("192.0.2.1/32")}
		if got := second.Client(fields, netip.MustParseAddr("192.0.2.1")); got != peer {
			t.Errorf("%q, host %q: the client is %v", chain, host, got)
		}
	})
}
