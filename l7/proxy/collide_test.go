package proxy

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// variables are the fields of a request as a program behind CGI sees them (RFC 3875 4.1.18), with the strictest reading of names.
func variables(fields [][2]string) map[string][]string {
	vars := map[string][]string{}
	for _, f := range fields {
		name := "HTTP_" + strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r - 'a' + 'A'
			}
			return '_'
		}, f[0])
		vars[name] = append(vars[name], f[1])
	}
	return vars
}

const claim = "the-client-says-so"

// spoofs are lines by which a client claims what only the gateway may say.
var spoofs = []string{
	"X_Forwarded_Client_Cert", "X.Forwarded.Client.Cert", "X-Forwarded_Client-Cert", "x-forwarded-client_cert", "Client_Cert", "client.cert", "Client-Cert_Chain",
	"X_Forwarded_For", "X.Forwarded.For", "X_Forwarded-Proto", "X-Forwarded_Host", "X_Real_IP", "X.Real-IP", "X~Real~IP", "X+Forwarded+Host", "X_Forwarded_User",
	"X-Forwarded-Client-Cert", "X-Forwarded-For", "Client-Cert", "X_Role", "X.Role", "X-Removed", "X_Removed",
}

// spoofRig is a gateway whose rule sets x-role and removes x-removed, and what its backend has received.
func spoofRig(t *testing.T, change func(ln *Listener)) (*memRig, *recorder) {
	back := &recorder{}
	return newMemRig(t, func(r *memRig, tree *Tree) {
		r.backend = back.serve
		r.rule.RequestHeaders = &rewrite.Headers{Set: []semantics.Field{{Name: "x-role", Value: "guest"}}, Remove: []string{"x-removed"}}
		for _, ln := range tree.Listeners {
			ln.Names = rewrite.NewNames([]string{"x-role", "x-removed"})
			if change != nil {
				change(ln)
			}
		}
	}), back
}

// claimed returns the variables in which the backend of a rig finds the claim of a client.
func claimed(requests []wrongcases.Request) (names []string) {
	for _, r := range requests {
		for name, values := range variables(slices.Concat(r.Fields, r.Trailers)) {
			if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, claim) }) {
				names = append(names, name)
			}
		}
	}
	return names
}

func TestNoSpellingOfAFieldNamesTheClient(t *testing.T) {
	for _, name := range spoofs {
		r, back := spoofRig(t, nil)
		got := r.ask("GET / HTTP/1.1\r\nHost: a\r\nX_Custom: 1\r\n" + name + ": " + claim + "\r\n\r\n")
		requests := back.since(0)
		if !strings.HasPrefix(got, "HTTP/1.1 200") || len(requests) != 1 {
			t.Fatalf("%s: %.100q", name, got)
		}
		if names := claimed(requests); len(names) > 0 {
			t.Errorf("%s: the backend has the client's claim as %v", name, names)
		}
		if v := variables(requests[0].Fields); !slices.Equal(v["HTTP_X_ROLE"], []string{"guest"}) || !slices.Equal(v["HTTP_X_CUSTOM"], []string{"1"}) {
			t.Errorf("%s: the backend has %v", name, v)
		}
		r.nothingLeft()
	}
}

func TestNoTrailerNamesTheClient(t *testing.T) {
	for _, name := range spoofs {
		r, back := spoofRig(t, nil)
		r.ask("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n" + name + ": " + claim + "\r\n\r\n")
		requests := back.since(0)
		if len(requests) != 1 || !slices.Contains(requests[0].Trailers, [2]string{"x-sum", "1"}) {
			t.Fatalf("%s: %+v", name, requests)
		}
		if names := claimed(requests); len(names) > 0 {
			t.Errorf("%s: the backend has the client's claim as %v", name, names)
		}
		r.nothingLeft()
	}
}

// A proxy that is trusted continues the fields of this form alone: a client behind it may have sent the others.
func TestATrustedProxyDoesNotVouchForOtherSpellings(t *testing.T) {
	r, back := spoofRig(t, func(ln *Listener) { ln.Forwarding.Trusted = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")} })
	r.ask("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\nX_Forwarded_For: " + claim + "\r\nX_Forwarded_Client_Cert: " + claim + "\r\n\r\n")
	requests := back.since(0)
	if v, _ := requests[0].Field("x-forwarded-for"); !strings.HasPrefix(v, "192.0.2.7, ") {
		t.Errorf("the chain is %q", v)
	}
	if names := claimed(requests); len(names) > 0 {
		t.Errorf("the backend has the client's claim as %v", names)
	}
	r.nothingLeft()
}

func TestCollidingFieldsByChoice(t *testing.T) {
	for colliding, want := range map[Colliding]string{DropColliding: "200", RejectColliding: "400", AllowColliding: "200"} {
		r, back := spoofRig(t, func(ln *Listener) { ln.Colliding = colliding })
		if got := r.ask("GET / HTTP/1.1\r\nHost: a\r\nX_Custom: 1\r\nX_Role: " + claim + "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%d: %.100q, want %s", colliding, got, want)
		}
		if names := claimed(back.since(0)); (len(names) > 0) != (colliding == AllowColliding) {
			t.Errorf("%d: the backend has the client's claim as %v", colliding, names)
		}
		if got := r.ask("GET / HTTP/1.1\r\nHost: a\r\nX_Custom: 1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("%d: a field that collides with none: %.100q", colliding, got)
		}
		r.nothingLeft()
	}
}

// The same with HTTP/2 and HTTP/3, whose fields come by other parsers.
func TestNoSpellingOfAFieldNamesTheClientInOtherVersions(t *testing.T) {
	var fields []wrongcases.Field
	for _, name := range spoofs {
		fields = append(fields, wrongcases.Field{strings.ToLower(name), claim})
	}
	base := []wrongcases.Field{{":method", "GET"}, {":scheme", "http"}, {":authority", "gateway.test"}, {":path", "/"}}
	r, back := spoofRig(t, nil)
	c := r.connect(memHTTP2)
	c.Write([]byte(wrongcases.Preface + wrongcases.Section(1, 1, slices.Concat(base, fields))))
	r.run()
	if names := claimed(back.since(0)); len(back.since(0)) != 1 || len(names) > 0 {
		t.Errorf("HTTP/2: %d requests, the client's claim as %v", len(back.since(0)), names)
	}
	r.nothingLeft([]*memtransport.Peer{c}...)

	base[1][1] = "https"
	backend, got := recordingBackend(t)
	r3 := http3Rig(t, backend, func(r *rig) {
		r.rule.RequestHeaders = &rewrite.Headers{Set: []semantics.Field{{Name: "x-role", Value: "guest"}}, Remove: []string{"x-removed"}}
		r.tree.Listeners[1].Names = rewrite.NewNames([]string{"x-role", "x-removed"})
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ask3(t, ctx, r3.dial3(ctx, quicSocket(t), nil), &wrongcases.FieldCase{Fields: slices.Concat(base, fields)})
	var requests []wrongcases.Request
	for _, b := range got.take() {
		parsed, err := wrongcases.Parse(b)
		must(t, err)
		requests = append(requests, parsed...)
	}
	if names := claimed(requests); len(requests) != 1 || len(names) > 0 {
		t.Errorf("HTTP/3: %d requests, the client's claim as %v", len(requests), names)
	}
}
