package rewrite

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/semantics"
)

func TestTemplates(t *testing.T) {
	v := &Values{
		Client: netip.MustParseAddr("::ffff:192.0.2.7"), Peer: netip.MustParseAddrPort("[fe80::1%eth0]:4000"), Listener: "web", Local: netip.MustParseAddrPort("198.18.0.1:443"),
		TLS: true, TLSVersion: "TLS 1.3", ServerName: "a.example", Host: "a.example:443", Method: "GET", Path: "/p", Target: "/p?q", Protocol: "HTTP/2", Route: "r", Rule: "u",
		Pool: "p", Backend: "b", BackendAddress: netip.MustParseAddrPort("[2001:db8::1]:80"), RequestID: "id", User: "ann",
	}
	all := ""
	for _, name := range Variables() {
		all += "${" + name + "} "
	}
	for _, c := range []struct{ in, want, wrong string }{
		{"${client_address}", "192.0.2.7", ""},
		{"a ${peer_address}:${peer_port} b", "a fe80::1:4000 b", ""},
		{all, "192.0.2.7 fe80::1 4000 web 198.18.0.1 443 https a.example:443 a.example GET /p /p?q HTTP/2 TLS 1.3 a.example r u p b [2001:db8::1]:80 id ann ", ""},
		{"$5 and $${host} is ${host}$", "$5 and ${host} is a.example:443$", ""},
		{"$$${host}", "$${host}", ""}, // the second dollar sign is of "$${"
		{"${hots}", "", "unknown variable ${hots}"},
		{"${}", "", "unknown variable ${}"},
		{"x ${host", "", "is not closed"},
	} {
		tmpl, err := ParseTemplate(c.in)
		if (c.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v", c.in, err)
		}
		if err != nil {
			continue
		}
		if got := string(tmpl.Append([]byte("> "), v)); got != "> "+c.want {
			t.Errorf("%s: %q, want %q", c.in, got, c.want)
		}
	}
	for _, text := range []string{"", "plain", "costs $5", "$$"} {
		if tmpl, err := ParseTemplate(text); tmpl != nil || err != nil {
			t.Errorf("%q is a template: %v", text, err)
		}
	}
	empty, err := ParseTemplate(all)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(empty.Append(nil, &Values{}))); !slices.Equal(got, []string{"http"}) {
		t.Errorf("without a request: %q", got)
	}
}

// A field without a value is left out, and takes the place of what a client has sent all the same: it must not pass for the
// gateway's.
func TestFieldsWithVariables(t *testing.T) {
	h := &Headers{
		Set: []semantics.Field{{Name: "x-real-ip", Value: "${client_address}"}, {Name: "x-sni", Value: "${server_name}"}, {Name: "x-fixed", Value: "f"}},
		Add: []semantics.Field{{Name: "x-added", Value: "${method}-${host}"}, {Name: "x-none", Value: "${backend}"}}, Remove: []string{"x-old"},
	}
	if err := h.Compile(); err != nil || !h.Dynamic || h.Identifies {
		t.Fatalf("%v, %+v", err, h)
	}
	fields := func() []semantics.Field {
		return []semantics.Field{{Name: "x-sni", Value: "forged"}, {Name: "x-old", Value: "1"}, {Name: "x-real-ip", Value: "forged"}, {Name: "x-real-ip", Value: "again"}}
	}
	v := &Values{Client: netip.MustParseAddr("192.0.2.7"), Method: "GET", Host: "a"}
	for _, sni := range []string{"", "a\r\nx: y", "a\x00"} {
		v.ServerName = sni
		got, _ := h.Expand(fields(), nil, v)
		want := []semantics.Field{{Name: "x-real-ip", Value: "192.0.2.7"}, {Name: "x-fixed", Value: "f"}, {Name: "x-added", Value: "GET-a"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", sni, diff)
		}
	}
	if bad := (&Headers{Set: []semantics.Field{{Name: "x", Value: "${nothing}"}}}); bad.Compile() == nil {
		t.Error("an unknown variable is compiled")
	}
	room, into := make([]byte, 0, 256), fields()
	v.ServerName = "a"
	if n := testing.AllocsPerRun(100, func() { _, _ = h.Expand(append(into[:0], semantics.Field{Name: "x-real-ip"}), room, v) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
