package proxy

import (
	"bytes"
	"context"
	ctls "crypto/tls"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/wrongcases"
	"github.com/millrace/millrace/l7/route"
)

// denyAdmin gives listeners a rule that denies admin.test and an address, beside one for every host.
func denyAdmin(t *testing.T, to *Rule, listeners ...*Listener) {
	t.Helper()
	table, err := route.New([]route.Rule{
		{Name: "admin", Match: route.Match{Hosts: []string{"admin.test", "*.admin.test", "[2001:db8::1]"}}}, {Name: "all"},
	})
	must(t, err)
	for _, ln := range listeners {
		ln.Table, ln.Rules = table, []*Rule{{Name: "admin", Response: &Response{Status: 403}}, to}
	}
}

// No spelling of a host gets around a rule that denies it: an absolute name is the same name (RFC 1034 3.1).
func TestHostsLeadWhereTheyAreRead(t *testing.T) {
	back := &recorder{}
	r := newMemRig(t, func(r *memRig, tree *Tree) {
		r.backend = back.serve
		denyAdmin(t, r.rule, tree.Listeners...)
	})
	for host, want := range map[string]int{
		"admin.test": 403, "admin.test.": 403, "ADMIN.test.": 403, "admin.test.:80": 403, "x.admin.test.": 403, "[2001:db8::1]": 403, "[2001:DB8:0:0:0::1]": 403, "[2001:db8:0::1]:8080": 403,
		"admin.test..": 400, "admin.test..:80": 400, ".": 400, "a.": 200, "notadmin.test.": 200, "a": 200,
		// What a recipient may read as another name: decoded, as a list, as an address, without an empty label, as Punycode.
		"%61dmin.test": 400, "admin%2etest": 400, "admin%2Etest": 400, "admin.test%00": 400, "a%20b": 400, "admin.test,a": 400, "a,admin.test": 400, "a;b": 400, "a'b": 400,
		"admin..test": 400, ".admin.test": 400, "xn--admin-.test": 400, "XN--admin-.test": 400, "admin.xn--test-": 400, "xn--bcher-kva.test": 200, "a-.test": 200, "a_b.test": 200,
		"127.0.0.1": 200, "127.0.0.1:80": 200, "0x7f.1": 400, "0X7F.0.0.1": 400, "127.1": 400, "0177.0.0.1": 400, "2130706433": 400, "127.0.0.01": 400, "127.0.0.256": 400,
		"1.2.3.4.5": 400, "127.0.0.1.": 200, "a.0x": 400, "a.0x1g": 200, "1a": 200, "1.a": 200, "[fe80::1%251]": 400, "[fe80::1%1]": 400, "u@admin.test": 400, "u:p@admin.test": 400,
		"\xe3\x80\x82": 400, "\xef\xbd\x81dmin.test": 400, "admin.test:": 403, "a:": 200, "a:65535": 200, "a:65536": 400, "a:00000000080": 400, "a:99999999999999999999": 400,
	} {
		for version, ask := range map[string]func() int{
			"Host":          func() int { return statusOf(t, r.ask("GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")) },
			"absolute form": func() int { return statusOf(t, r.ask("GET http://"+host+"/ HTTP/1.1\r\nHost: "+host+"\r\n\r\n")) },
			"HTTP/1.0":      func() int { return statusOf(t, r.ask("GET / HTTP/1.0\r\nHost: "+host+"\r\n\r\n")) },
			":authority": func() int {
				c := newMemClient2(r)
				defer r.run()
				defer c.p.Close()
				return c.askHost(host).status
			},
		} {
			got := ask()
			if got == 0 && version == ":authority" { // the stream was reset: the message is malformed
				got = 400
			}
			if got != want {
				t.Errorf("%s %s: status %d, want %d", version, host, got, want)
			}
		}
	}
	r.nothingLeft()
	for _, request := range back.since(0) {
		if host, _ := request.Field("host"); strings.HasSuffix(strings.TrimSuffix(host, ":80"), ".") {
			t.Errorf("the backend got the host %q", host)
		}
	}
}

func TestHostsLeadWhereTheyAreReadHTTP3(t *testing.T) {
	backend, got := recordingBackend(t)
	r := http3Rig(t, backend, func(r *rig) { denyAdmin(t, r.rule, r.tree.Listeners...) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := r.dial3(ctx, quicSocket(t), nil)
	for host, want := range map[string]int{"admin.test.": 0, "Admin.Test.:443": 0, "admin.test..": 0, "other.test.": 1, "%61dmin.test": 0, "0x7f.1": 0, "a:65536": 0, "xn--admin-.test": 0, "a,b": 0, "admin..test": 0} {
		ask3(t, ctx, conn, &wrongcases.FieldCase{Fields: []wrongcases.Field{{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", "/"}}})
		if n := len(got.take()); n != want {
			t.Errorf("%s: %d requests at the backend, want %d", host, n, want)
		}
	}
}

// A condition on the server name holds for it in any case: crypto/tls reports it as it was sent.
func TestServerNamesOfRulesHaveNoCase(t *testing.T) {
	r := newRig(t, echoBackend(t, false), func(r *rig) {
		table, err := route.New([]route.Rule{{Name: "admin", Match: route.Match{SNI: []string{"gateway.test"}}}, {Name: "all"}})
		must(t, err)
		r.tree.Listeners[1].Table, r.tree.Listeners[1].Rules = table, []*Rule{{Name: "admin", Response: &Response{Status: 403}}, r.rule}
	})
	for _, name := range []string{"gateway.test", "GATEWAY.Test"} {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &ctls.Config{RootCAs: r.roots, ServerName: name}, DialContext: over.dial}}
		resp, err := c.Get("https://" + r.secure + "/")
		must(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != 403 {
			t.Errorf("%s: status %d", name, resp.StatusCode)
		}
		c.CloseIdleConnections()
	}
}

// Streams that are passed through go by the server name, which has no dot at its end (RFC 6066 3): one that has is refused, as by
// crypto/tls, and falls through to no other route.
func TestServerNamesOfStreamsHaveNoRootDot(t *testing.T) {
	for name, want := range map[string]string{
		"mail.test": "mail.test", "MAIL.Test": "mail.test", "mail.test.": "", "MAIL.test.": "", "mail.test..": "",
	} {
		r := newMemRig(t, func(r *memRig, tree *Tree) {
			table, err := route.New([]route.Rule{{Name: "mail", Match: route.Match{Hosts: []string{"mail.test"}}}, {Name: "all"}})
			must(t, err)
			ln := r.stream(tree, StreamTLS)
			rule := *r.rule
			rule.Name = "mail"
			ln.Table, ln.Rules = table, []*Rule{&rule, {Name: "all"}}
		})
		var record Record
		r.worker.OnRecord(func(got *Record) { record = *got; record.Host = strings.Clone(got.Host) })
		c := r.connect(memStream)
		c.Write(helloFor(t, name))
		r.run()
		alert := c.Take()
		r.nothingLeft(c)
		if want == "" && (len(alert) < 7 || alert[0] != 21) || want != "" && (record.Host != want || record.Rule != "mail") {
			t.Errorf("%s: rule %q, host %q, answered %q; want %q", name, record.Rule, record.Host, alert, want)
		}
	}
}

// helloFor returns a ClientHello for a name that crypto/tls would not send as it is.
func helloFor(t *testing.T, name string) []byte {
	placeholder := strings.Repeat("q", len(name)-2) + ".q"
	return bytes.Replace(rawHello(t, &ctls.Config{ServerName: placeholder}), []byte(placeholder), []byte(name), 1)
}
