package acme

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"
)

// solver has the answers to the challenges under way.
type solver struct {
	mu     sync.RWMutex
	tokens map[string]string      // path of http-01 -> key authorization
	hellos map[string]*tls.Config // server name of tls-alpn-01 -> what answers it
}

func newSolver() *solver {
	return &solver{tokens: map[string]string{}, hellos: map[string]*tls.Config{}}
}

// challengePath is where authorities look for tokens (RFC 8555 8.3).
const challengePath = "/.well-known/acme-challenge/"

// serveHTTP answers a challenge. It reports false for all other requests, those for unknown tokens
// included: they may be another program's.
func (s *solver) serveHTTP(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, challengePath) || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	answer, ok := s.answer(r.URL.Path)
	if ok {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = io.WriteString(w, answer)
	}
	return ok
}

// answer returns the key authorization for the path of a token.
func (s *solver) answer(path string) (answer string, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	answer, ok = s.tokens[path]
	return answer, ok
}

// configFor returns the config that answers a challenge, nil for all other hellos.
func (s *solver) configFor(hello *tls.ClientHelloInfo) *tls.Config {
	if len(hello.SupportedProtos) != 1 || hello.SupportedProtos[0] != acmez.ACMETLS1Protocol {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.hellos[strings.ToLower(hello.ServerName)]
}

// httpSolver makes the answers of http-01.
type httpSolver struct{ *solver }

// Present is called by acmez before the authority asks.
func (s httpSolver) Present(_ context.Context, c acme.Challenge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[c.HTTP01ResourcePath()] = c.KeyAuthorization
	return nil
}

// CleanUp is called by acmez at the end, whatever it was.
func (s httpSolver) CleanUp(_ context.Context, c acme.Challenge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, c.HTTP01ResourcePath())
	return nil
}

// tlsSolver makes the answers of tls-alpn-01.
type tlsSolver struct{ *solver }

// Present is called by acmez before the authority asks.
func (s tlsSolver) Present(_ context.Context, c acme.Challenge) error {
	cert, err := acmez.TLSALPN01ChallengeCert(c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hellos[helloName(c.Identifier)] = &tls.Config{
		Certificates: []tls.Certificate{*cert}, NextProtos: []string{acmez.ACMETLS1Protocol}, MinVersion: tls.VersionTLS12,
	}
	return nil
}

// CleanUp is called by acmez at the end, whatever it was.
func (s tlsSolver) CleanUp(_ context.Context, c acme.Challenge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hellos, helloName(c.Identifier))
	return nil
}

// helloName returns the server name by which the authority asks for an identifier: of an address the
// name in the reverse tree of DNS, since a server name cannot be an address (RFC 8738 6).
func helloName(id acme.Identifier) string {
	addr, err := netip.ParseAddr(id.Value)
	if err != nil {
		return strings.ToLower(id.Value)
	}
	var b strings.Builder
	bytes := addr.AsSlice()
	for i := len(bytes) - 1; i >= 0; i-- {
		if addr.Is4() {
			b.WriteString(strconv.Itoa(int(bytes[i])) + ".")
			continue
		}
		b.WriteString(strconv.FormatUint(uint64(bytes[i]&15), 16) + "." + strconv.FormatUint(uint64(bytes[i]>>4), 16) + ".")
	}
	if addr.Is4() {
		return b.String() + "in-addr.arpa"
	}
	return b.String() + "ip6.arpa"
}
