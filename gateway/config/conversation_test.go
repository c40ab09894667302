package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/health"
)

func TestConversationsOfChecks(t *testing.T) {
	c, err := Parse("f", []byte(checked("TCP", `health: {type: tcp, tcp: [{expect: "220"}, {send: "QUIT\r\n"}, {expect_hex: "0a"}]}`)))
	if err == nil || !strings.Contains(err.Error(), "requests go to pools that speak HTTP") { // the kind of file has a route of HTTP
		t.Fatal(err)
	}
	c, err = Parse("f", []byte(checked("HTTP", `health: {type: tcp, tcp: [{expect: "220"}, {send: "QUIT\r\n"}, {expect_hex: "0a"}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	if want := []health.Step{{Expect: []byte("220")}, {Send: []byte("QUIT\r\n")}, {Expect: []byte("\n")}}; !reflect.DeepEqual(c.Pools[0].Health.TCP, want) {
		t.Errorf("%q", c.Pools[0].Health.TCP)
	}
	for _, bad := range []struct{ check, want string }{
		{"type: tcp, tcp: [{send: a, expect: b}]", "sends or expects one thing"},
		{"type: tcp, tcp: [{}]", "either send or expect"},
		{"type: http, tcp: [{send: a}]", "tcp is not for checks of type http"},
		{"type: tcp, tcp: [" + strings.Repeat("{send: a}, ", 17) + "]", "at most 16"},
	} {
		if _, err := Parse("f", []byte(checked("HTTP", "health: {"+bad.check+"}"))); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want %q", bad.check, err, bad.want)
		}
	}
}
