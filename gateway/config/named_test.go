package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/resolve"
)

// inPool1 is a file with a backend at an address.
func inPool1(address, more string) string {
	return "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\n" + toPool + "pools: [{name: p, " + more + "backends: [{address: '" + address + "'}]}]\n"
}

func TestBackendsWithNamesAndPaths(t *testing.T) {
	for address, want := range map[string]PoolBackend{
		"app.example.org:8080":        {Named: resolve.Name{Name: "app.example.org", Port: 8080}},
		"app:1":                       {Named: resolve.Name{Name: "app", Port: 1}},
		"_x.example.:65535":           {Named: resolve.Name{Name: "_x.example.", Port: 65535}},
		"1.a:80":                      {Named: resolve.Name{Name: "1.a", Port: 80}},
		"srv:_http._tcp.example.org.": {Named: resolve.Name{Kind: resolve.Service, Name: "_http._tcp.example.org."}},
		"unix:/run/app.sock":          {Path: "/run/app.sock"},
	} {
		c, err := Parse("f", []byte(inPool1(address, "")))
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		b := c.Pools[0].Backends[0]
		if b.Named != want.Named || b.Path != want.Path || b.Name != address || b.Where() != address {
			t.Errorf("%s: %+v", address, b)
		}
	}
}

// TestWrongBackends has each kind of mistake, and what its message says.
func TestWrongBackends(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{inPool1("app.example", ""), "the port is missing: app.example:80"},
		{inPool1("app.example:0", ""), "address has no port"},
		{inPool1("app.example:http", ""), "address has no port"},
		{inPool1("198.18.0.1000:80", ""), "must be an IP address and a port"},
		{inPool1("198.18.0.1", ""), "the port is missing: 198.18.0.1:80"},
		{inPool1("a..b:80", ""), "must be an IP address and a port"},
		{inPool1("-a.b:80", ""), "must be an IP address and a port"},
		{inPool1("bücher.example:80", ""), "must be an IP address and a port"},
		{inPool1(strings.Repeat("a.", 127)+"aa:80", ""), "must be an IP address and a port"},
		{inPool1("http://app.example:80", ""), "must be an IP address and a port"},
		{inPool1("srv:", ""), "such as srv:_http._tcp.example.org"},
		{inPool1("srv:a b", ""), "address has no name of a service"},
		{inPool1("unix:app.sock", ""), "the path of a socket must be absolute"},
		{inPool1("unix:/"+strings.Repeat("a", 107), ""), "at most 107 are allowed"},
		{inPool1("unix:/a", "protocol: H3, tls: {insecure: true}, "), "HTTP/3 is over UDP"},
		{inPool1("unix:/a", "health: {port: 9}, "), "there is no port to probe"},
		{inPool1("unix:/a", "health: {device: eth0}, "), "no device leads there"},
		{strings.Replace(kinds["http stack"], "198.18.0.2:1", "'unix:/a'", 1), "`stack: devices` does not reach"},
		{inPool1("a.example:80'}, {address: 'a.example:80", ""), `backend address "a.example:80"`},
		{"resolver: {servers: 192.0.2.1}\n" + kinds["http"], "resolver has no effect: no backend of a pool has a name"},
		{"resolver: {servers: ns.example}\n" + inPool1("a.example:80", ""), "servers must be an IP address and a port"},
		{"resolver: {min_ttl: 10m}\n" + inPool1("a.example:80", ""), "max_ttl 5m0s is shorter than min_ttl 10m0s"},
		{"resolver: {family: ipv5}\n" + inPool1("a.example:80", ""), "ipv4"},
		{"resolver: {}\n" + oneService, "resolver is for listeners, and there are none"},
	} {
		if _, err := Parse("f", []byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
}

func TestNamesOfAConfiguration(t *testing.T) {
	c, err := Parse("f", []byte("resolver: {servers: [192.0.2.1, '[2001:db8::1]:5353']}\n"+inPool1("a.example:80'}, {address: 'srv:b'}, {address: '192.0.2.1:80", "")))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.Names(), c.Resolver.Options().Servers); got != "[a.example:80 srv:b] [192.0.2.1:53 [2001:db8::1]:5353]" {
		t.Error(got)
	}
	var file strings.Builder
	for i := range maxNames + 1 {
		fmt.Fprintf(&file, "'}, {address: 'a%d.example:80", i)
	}
	if _, err := Parse("f", []byte(inPool1("a.example:80"+file.String(), ""))); err == nil || !strings.Contains(err.Error(), "at most 1024 are allowed") {
		t.Errorf("many names: %v", err)
	}
}

func TestDiffOfNames(t *testing.T) {
	parse := func(address string) *Config {
		c, err := Parse("f", []byte(strings.Replace(inPool1(address, ""), "{address", "{name: b, address", 1)))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	list := Diff(parse("a.example:80"), parse("a.example:81"))
	if len(list) != 1 || list[0].String() != "~ backend p/b: address a.example:80 -> a.example:81" {
		t.Errorf("%v", list)
	}
}
