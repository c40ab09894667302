package config

import (
	"strings"
	"testing"
)

// proxy_protocol.http3 needs HTTP/3, and HTTP/3 alone needs it.
func TestPROXYHeadersOfDatagrams(t *testing.T) {
	file := func(protocol, keys string) string {
		tls := ""
		if protocol == "HTTPS" {
			tls = ", tls: {certificates: [{cert: c, key: k}]}"
		}
		routes := kinds["answers"][strings.Index(kinds["answers"], "routes:"):]
		return "listeners: [{name: l, address: 127.0.0.1:443, protocol: " + protocol + tls + ", " + keys + "}]\n" + routes
	}
	for _, c := range []struct{ protocol, keys, want string }{
		{"HTTPS", `versions: ["1.1", "3"], proxy_protocol: {from: 192.0.2.0/28, http3: true}`, ""},
		{"HTTPS", `versions: ["3"], proxy_protocol: {from: 192.0.2.0/28, http3: true}`, ""},
		{"HTTPS", `versions: ["1.1", "3"], proxy_protocol: {from: 192.0.2.0/28}`, ""},
		{"HTTPS", `versions: ["3"], proxy_protocol: {from: 192.0.2.0/28}`, "proxy_protocol is of TCP without `http3`"},
		{"HTTPS", `versions: ["1.1"], proxy_protocol: {from: 192.0.2.0/28, http3: true}`, "http3 of proxy_protocol has no effect"},
		{"HTTP", `proxy_protocol: {from: 192.0.2.0/28, http3: true}`, "http3 of proxy_protocol has no effect"},
	} {
		got, err := Parse("f", []byte(file(c.protocol, c.keys)))
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s, %s: %v, want %q", c.protocol, c.keys, err, c.want)
		case c.want == "" && got.Listeners[0].ProxyDatagrams != strings.Contains(c.keys, "http3"):
			t.Errorf("%s: %+v", c.keys, got.Listeners[0])
		}
	}
}
