package proxy

import (
	ctls "crypto/tls"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// Only tokens of challenges under way are answered, with GET and HEAD, before what keeps clients out. Those of other clients of ACME,
// and of accounts that an attacker has, go to the rules like all requests: the gateway proves control of no name for them.
func TestTokensOfOthersGoToTheRules(t *testing.T) {
	const own = challengePath + "own"
	var guard *Guard
	r := newMemRig(t, func(r *memRig, tree *Tree) {
		guard = &Guard{Counts: NewGuardCounts(1)}
		r.rule.Guard = guard
		tree.Listeners[0].Challenge = func(path string) (string, bool) { return "own.thumbprint", path == own }
	})
	const challenge, rules = "own.thumbprint", "ok" // of the recorder
	for _, c := range []struct{ method, target, host, want string }{
		{"GET", own, "a", challenge},
		{"HEAD", own, "a", ""},
		{"GET", own + "?query", "a", challenge},
		{"GET", own, "name.of.another", challenge}, // the authority may ask by any name, and follows redirects (RFC 8555 8.3)
		{"GET", challengePath + "x/../own", "a", challenge},
		{"GET", "http://a" + own, "a", challenge},

		{"GET", challengePath + "other", "a", rules},
		{"GET", challengePath + "owner", "a", rules},
		{"GET", challengePath + "OWN", "a", rules},
		{"GET", challengePath + "own/", "a", rules},
		{"GET", challengePath + "own%2Fx", "a", rules},
		{"GET", challengePath, "a", rules},
		{"GET", "/.well-known/acme-challenge", "a", rules},
		{"GET", "/x" + own, "a", rules},
		{"GET", own + "/../../x", "a", rules},
		{"POST", own, "a", rules},
		{"PUT", own, "a", rules},
		{"OPTIONS", own, "a", rules},
	} {
		answer := r.ask(c.method + " " + c.target + " HTTP/1.1\r\nHost: " + c.host + "\r\nContent-Length: 0\r\n\r\n")
		head, body, _ := strings.Cut(answer, "\r\n\r\n")
		own := strings.Contains(head, "content-type: application/octet-stream")
		if !strings.HasPrefix(head, "HTTP/1.1 200 ") || body != c.want || own != (c.want != rules) {
			t.Errorf("%s %s: %q, want %q", c.method, c.target, answer, c.want)
		}
	}
	guard.Maintenance = &Maintenance{Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	if got := r.ask("GET " + own + " HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasSuffix(got, challenge) {
		t.Errorf("a guard keeps the authority out: %q", got)
	}
	if got := r.ask("GET " + challengePath + "other HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 503 ") {
		t.Errorf("the path of challenges gets around a guard: %q", got)
	}
}

// A handshake with acme-tls/1 is answered for names whose challenge is under way, and carries no request (RFC 8737 3). For other names it
// fails, so that no certificate of theirs stands in for a proof.
func TestHandshakesOfAuthoritiesCarryNoRequests(t *testing.T) {
	r := newRig(t, echoBackend(t, false), func(r *rig) {
		own := r.tree.Listeners[1].TLS
		proof := own.Clone()
		proof.NextProtos = []string{acmeTLS}
		own.GetConfigForClient = func(h *ctls.ClientHelloInfo) (*ctls.Config, error) {
			if h.ServerName == "gateway.test" && slices.Equal(h.SupportedProtos, proof.NextProtos) {
				return proof, nil
			}
			return nil, nil
		}
	})
	for _, c := range []struct {
		name, protocols, want string // what is agreed on; "" for a handshake that fails
	}{
		{"gateway.test", acmeTLS, acmeTLS},
		{"other.test", acmeTLS, ""},
		{"gateway.test", acmeTLS + " http/1.1", "http/1.1"},
	} {
		plain, err := over.dial(t.Context(), "tcp", r.secure)
		must(t, err)
		defer plain.Close()
		must(t, plain.SetDeadline(time.Now().Add(20*time.Second)))
		conn := ctls.Client(plain, &ctls.Config{ServerName: c.name, InsecureSkipVerify: true, NextProtos: strings.Fields(c.protocols)})
		if err := conn.Handshake(); (err == nil) != (c.want != "") || conn.ConnectionState().NegotiatedProtocol != c.want {
			t.Errorf("%s with %s: %q, %v", c.name, c.protocols, conn.ConnectionState().NegotiatedProtocol, err)
			continue
		}
		if c.want == "" {
			continue
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\n\r\n")
		if answer, _ := io.ReadAll(conn); (len(answer) > 0) != (c.want != acmeTLS) {
			t.Errorf("%s with %s: %q", c.name, c.protocols, answer)
		}
	}
}
