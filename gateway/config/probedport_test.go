package config

import (
	"fmt"
	"strings"
	"testing"
)

// A health check that cannot succeed at the port of the pool's backends is refused, unless it has a port of its own.
func TestChecksThatCannotWorkAreRefused(t *testing.T) {
	for _, c := range []struct{ protocol, check, want string }{
		{"HTTP", "type: tcp", ""},
		{"HTTP", "type: http", ""},
		{"H2C", "type: http", ""},
		{"HTTPS", "type: https", ""},
		{"H2", "type: https", ""},
		{"TCP", "type: https", ""}, // what passes through may have TLS
		{"TCP", "type: http", ""},
		{"HTTPS", "type: http", "speaks TLS: its http health check needs a port"},
		{"H2", "type: http", "speaks TLS: its http health check needs a port"},
		{"HTTP", "type: https", "speaks HTTP without TLS: its https health check needs a port"},
		{"H2C", "type: https", "speaks H2C without TLS: its https health check needs a port"},
		{"HTTP", "type: udp, udp: {send: a}", "has connections of TCP: its udp health check needs a port"},
		{"H2C", "type: grpc", ""},
		{"H2", "type: grpcs", ""},
		{"TCP", "type: grpc", ""},
		{"HTTP", "type: grpc, port: 81", ""},
		{"HTTP", "type: grpc", "speaks HTTP/1.1, and gRPC is HTTP/2: its grpc health check needs a port"},
		{"HTTPS", "type: grpcs", "speaks HTTP/1.1, and gRPC is HTTP/2: its grpcs health check needs a port"},
		{"H2", "type: grpc", "speaks TLS: its grpc health check needs a port"},
		{"H2C", "type: grpcs", "speaks H2C without TLS: its grpcs health check needs a port"},
		{"H2C", "type: grpc, grpc: {insecure: true}", "insecure is for grpcs"},
		{"H2C", "type: http, grpc: {service: a}", "grpc is not for checks of type http"},
		{"HTTPS", "type: http, port: 80", ""},
		{"HTTP", "type: https, port: 443", ""},
		{"HTTP", "type: udp, udp: {send: a}, port: 53", ""},
	} {
		tls, route := "", "routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]"
		listener := `{name: l, address: "127.0.0.1:8080", protocol: HTTP}`
		switch c.protocol {
		case "HTTPS", "H2":
			tls = "tls: {server_name: a.test},"
		case "TCP":
			listener, route = strings.Replace(listener, "HTTP", "TCP", 1), "tcp_routes: [{name: r, backend_refs: [{name: p}]}]"
		}
		src := fmt.Sprintf("listeners: [%s]\n%s\npools: [{name: p, protocol: %s, %s health: {%s}, backends: [{address: \"127.0.0.1:81\"}]}]\n",
			listener, route, c.protocol, tls, c.check)
		_, err := Parse("gw.yaml", []byte(src))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: %v, want %q", c.protocol, c.check, err, c.want)
		}
	}
}
