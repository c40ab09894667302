package config

import (
	"strings"
	"testing"
)

// Values of fields may have variables, whose names are checked; request_id is the name of a field that filters may edit.
func TestVariablesAndTheFieldOfTheRequestID(t *testing.T) {
	with := func(listener, value string) string {
		src := strings.Replace(kinds["http"], "protocol: HTTP}", "protocol: HTTP"+listener+"}", 1)
		return strings.Replace(src, "remove: [x]", "set: [{name: x-real-ip, value: \""+value+"\"}]", 1)
	}
	c, err := Parse("f", []byte(with(", request_id: X-Request-Id", "${client_address}")))
	if err != nil || c.Listeners[0].RequestID != "x-request-id" || c.Routes[0].Rules[0].Filters[0].Set[0].Value != "${client_address}" {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, bad := range []struct{ src, want string }{
		{with("", "${client_adress}"), "unknown variable ${client_adress}\n"},
		{with("", "${client_address"), "is not closed by a brace"},
		{with("", "${}"), "allowed: client_address, peer_address,"},
		{with(", request_id: host", "x"), "a filter cannot edit host"},
		{with(", request_id: a b", "x"), "is not a name of a field"},
		{strings.Replace(kinds["tcp"], "protocol: TCP}]", "protocol: TCP, request_id: x}]", 1), "request_id is for HTTP and HTTPS"},
	} {
		if _, err := Parse("f", []byte(bad.src)); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want %q", bad.src, err, bad.want)
		}
	}
	if _, err := Parse("f", []byte(with("", "costs $${5} or $5"))); err != nil {
		t.Error(err)
	}
}
