package config

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestTargetsOfTunnels(t *testing.T) {
	for text, want := range map[string]UDPTarget{
		"192.0.2.0/24:53":       {netip.MustParsePrefix("192.0.2.0/24"), 53, 53},
		"192.0.2.1:8000-8099":   {netip.MustParsePrefix("192.0.2.1/32"), 8000, 8099},
		"[2001:db8::]/32:*":     {netip.MustParsePrefix("2001:db8::/32"), 1, 65535},
		"[::1]:443":             {netip.MustParsePrefix("::1/128"), 443, 443},
		"0.0.0.0/0:53":          {netip.MustParsePrefix("0.0.0.0/0"), 53, 53},
		"192.0.2.1":             {},
		"192.0.2.1:0":           {},
		"192.0.2.1:9-8":         {},
		"192.0.2.1:70000":       {},
		"2001:db8::1:53":        {},
		"[192.0.2.1]:53":        {},
		"[2001:db8::/32]:53":    {},
		"192.0.2.0/33:53":       {},
		"192.0.2.0/+24:53":      {},
		"[fe80::1%eth0]:53":     {},
		"[::ffff:192.0.2.1]:53": {},
		"name.example:53":       {},
		"[2001:db8::1:53":       {},
		"192.0.2.0/024:53":      {},
		"":                      {},
	} {
		if got, ok := parseUDPTarget(text); ok != want.Prefix.IsValid() || ok && got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, ok, want)
		}
	}
}

func TestTunnelsAreChecked(t *testing.T) {
	const rule = "rules: [{connect_udp: {targets: '192.0.2.0/24:53'}}]"
	of := func(rule string) string {
		return "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\nroutes: [{name: r, " + rule + "}]\npools: [{name: p, backends: [{address: 127.0.0.1:1}]}]\n"
	}
	for _, c := range []struct{ text, want string }{
		{of(rule), ""},
		{of(strings.Replace(rule, "0/24", "1/24", 1)), "bits beyond"},
		{of(strings.Replace(rule, ":53", "", 1)), "no prefix with ports"},
		{of("rules: [{connect_udp: {}}]"), "targets"},
		{of(strings.Replace(rule, "}}]", "}, backend_refs: [{name: p}]}]", 1)), "beside static or backend_refs"},
		{of(strings.Replace(rule, "}}]", "}, filters: [{type: FixedResponse}]}]", 1)), "is not used: the filter"},
		{of(strings.Replace(rule, "}}]", "}, retry: {attempts: 2}}]", 1)), "the rule answers by itself"},
		{"devices: [{name: eth0, addresses: [198.18.0.1/24]}]\nstack: devices\n" + strings.Replace(of(rule), "127.0.0.1:80", "198.18.0.1:80", 1), "sockets of the kernel"},
	} {
		_, err := Parse("t", []byte(c.text))
		ce := new(Error)
		if c.want == "" && err == nil {
			continue
		}
		if !errors.As(err, &ce) || !strings.Contains(ce.Problems[0].Message, c.want) || c.want == "" {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}
