package config

import (
	"errors"
	"strings"
	"testing"
)

func TestSessionsAreChecked(t *testing.T) {
	const (
		secure = "listeners: [{name: l, address: 127.0.0.1:443, protocol: HTTPS, versions: ['3'], tls: {certificates: [{cert: c}]}}]\n"
		pools  = "pools: [{name: p, protocol: H3, tls: {insecure: true}, backends: [{address: 127.0.0.1:1}]}, {name: q, backends: [{address: 127.0.0.1:1}]}]\n"
		rule   = "routes: [{name: r, rules: [{webtransport: {}, backend_refs: [{name: p}]}]}]\n"
	)
	for _, c := range []struct{ text, want string }{
		{secure + pools + rule, ""},
		{secure + pools + strings.Replace(rule, "name: p", "name: q", 1), `pool "q" speaks HTTP`},
		{strings.Replace(secure, "'3'", "'2'", 1) + pools + rule, "no listener of route"},
		{"listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\n" + pools + rule, "no listener of route"},
		{secure + pools + strings.Replace(rule, "backend_refs: [{name: p}]", "filters: [{type: FixedResponse}]", 1), "the rule answers by itself"},
		{secure + pools + strings.Replace(rule, "webtransport: {}", "webtransport: {sessions: 0}", 1), "sessions"},
		{secure + pools + strings.Replace(rule, "webtransport: {}", "webtransport: {streams: 1001}", 1), "streams"},
		{secure + pools + strings.Replace(rule, "webtransport: {}", "webtransport: {buffer_bytes: 1}", 1), "buffer_bytes"},
		{secure + pools + strings.Replace(rule, "webtransport: {}", "webtransport: {idle: 1ms}", 1), "idle"},
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
