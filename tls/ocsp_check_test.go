package tls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"
)

// askedClient is a client certificate, and its responder.
func askedClient(t *testing.T) (ca *authority, r *responder, cert tls.Certificate, chain [][]*x509.Certificate) {
	ca = newAuthority(t, "client root", nil, nil)
	r = newResponder(t)
	cert = ca.issue(t, nil, func(c *x509.Certificate) { c.OCSPServer = []string{r.URL} }, "x.client")
	return ca, r, cert, [][]*x509.Certificate{{cert.Leaf, ca.cert}}
}

func status(s int) func(*ocsp.Response) { return func(r *ocsp.Response) { r.Status = s } }

func TestRespondersOfClientCertificates(t *testing.T) {
	ca, r, cert, chain := askedClient(t)
	without := ca.issue(t, nil, nil, "y.client").Leaf
	hang := make(chan struct{})
	defer close(hang)
	for what, tc := range map[string]struct {
		reply           func(http.ResponseWriter)
		lenient, strict error
	}{
		"good":    {func(w http.ResponseWriter) { _, _ = w.Write(ca.answer(t, cert.Leaf, nil)) }, nil, nil},
		"revoked": {func(w http.ResponseWriter) { _, _ = w.Write(ca.answer(t, cert.Leaf, status(ocsp.Revoked))) }, ErrRevoked, ErrRevoked},
		"unknown": {func(w http.ResponseWriter) { _, _ = w.Write(ca.answer(t, cert.Leaf, status(ocsp.Unknown))) }, nil, ErrRevocationUnknown},
		"error":   {func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, nil, ErrRevocationUnknown},
		"garbage": {func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) }, nil, ErrRevocationUnknown},
		"silence": {func(http.ResponseWriter) { <-hang }, nil, ErrRevocationUnknown},
	} {
		for strict, want := range map[bool]error{false: tc.lenient, true: tc.strict} {
			r.set(tc.reply)
			c := &OCSPCheck{Strict: strict}
			if what == "silence" {
				c.Timeout = 50 * time.Millisecond
			}
			before := r.asked.Load()
			for range 3 {
				var refusal *VerifyError
				err := c.Check(chain)
				if !errors.Is(err, want) || (err == nil) != (want == nil) || err != nil && !errors.As(err, &refusal) {
					t.Errorf("%s, strict %v: %v, want %v", what, strict, err, want)
				}
			}
			if n := r.asked.Load() - before; n != 1 {
				t.Errorf("%s, strict %v: asked %d times", what, strict, n)
			}
		}
	}
	if err := (&OCSPCheck{}).Check([][]*x509.Certificate{{without, ca.cert}}); err != nil {
		t.Errorf("no responder: %v", err)
	}
	if err := (&OCSPCheck{Strict: true}).Check([][]*x509.Certificate{{without, ca.cert}}); !errors.Is(err, ErrNoResponder) || !errors.Is(err, ErrRevocationUnknown) {
		t.Errorf("no responder, strict: %v", err)
	}
	if err := (&OCSPCheck{Strict: true}).Check([][]*x509.Certificate{{without}}); err != nil {
		t.Errorf("trusted by itself: %v", err)
	}
}

// TestOCSPAnswersAreRenewed: an answer serves until its end, is renewed after half of its life without a wait, and a
// responder that fails then takes nothing away.
func TestOCSPAnswersAreRenewed(t *testing.T) {
	ca, r, cert, chain := askedClient(t)
	key := answerKey{}
	c := &OCSPCheck{Strict: true}
	age := func(renew, until time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for k, a := range c.answers {
			key = k
			old := &ocspAnswer{done: a.done, err: a.err, renew: time.Now().Add(renew), until: time.Now().Add(until)}
			c.answers[k] = old
		}
	}
	idle := func() {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			c.mu.Lock()
			running := c.running
			c.mu.Unlock()
			if running == 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatal("requests do not end")
			}
		}
	}
	r.send(ca.answer(t, cert.Leaf, nil))
	if err := c.Check(chain); err != nil {
		t.Fatal(err)
	}
	age(-time.Second, time.Minute)
	r.set(func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	for range 2 {
		if err := c.Check(chain); err != nil {
			t.Errorf("an answer that is to be renewed: %v", err)
		}
		idle()
	}
	if n := r.asked.Load(); n != 2 {
		t.Errorf("asked %d times, want 2: the failure is remembered", n)
	}
	age(-time.Second, time.Minute) // the time to try again has come
	hang := make(chan struct{})
	r.set(func(w http.ResponseWriter) { <-hang })
	for range 3 {
		if err := c.Check(chain); err != nil {
			t.Errorf("while a renewal is under way: %v", err)
		}
	}
	c.mu.Lock()
	if c.running != 1 {
		t.Errorf("%d renewals at once", c.running)
	}
	c.mu.Unlock()
	close(hang)
	idle()
	c.mu.Lock()
	for _, a := range c.answers {
		if a.renewing || time.Until(a.renew) < failedFor/2 {
			t.Errorf("after a failure the next renewal is in %v, %v", time.Until(a.renew), a.renewing)
		}
	}
	c.mu.Unlock()
	age(-time.Second, time.Minute)
	r.send(ca.answer(t, cert.Leaf, status(ocsp.Revoked)))
	if err := c.Check(chain); err != nil {
		t.Errorf("while it is renewed: %v", err)
	}
	idle()
	if err := c.Check(chain); !errors.Is(err, ErrRevoked) {
		t.Errorf("after it was renewed: %v", err)
	}
	age(time.Minute, -time.Second) // it ended
	r.send(ca.answer(t, cert.Leaf, nil))
	if err := c.Check(chain); err != nil || c.answers[key] == nil {
		t.Errorf("after its end: %v", err)
	}
}

// TestOCSPChecksAreBounded: answers that are kept and requests under way have their bounds, and a loop never waits.
func TestOCSPChecksAreBounded(t *testing.T) {
	ca, r, _, _ := askedClient(t)
	hang := make(chan struct{})
	r.set(func(w http.ResponseWriter) { <-hang })
	c := &OCSPCheck{Strict: true, NoWait: true, Entries: 100, Timeout: patience}
	chains := make([][][]*x509.Certificate, 110)
	key := newKey(t)
	for i := range chains {
		chains[i] = [][]*x509.Certificate{{ca.issue(t, key, func(c *x509.Certificate) { c.OCSPServer = []string{r.URL} }, "x").Leaf, ca.cert}}
		if err := c.Check(chains[i]); !errors.Is(err, ErrRevocationUnknown) {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	if c.running != maxOCSPRequests || len(c.answers) != maxOCSPRequests {
		t.Errorf("%d requests, %d answers", c.running, len(c.answers))
	}
	c.mu.Unlock()
	close(hang)
	c.NoWait = false
	for _, chain := range chains {
		_ = c.Check(chain)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) > 100 {
		t.Errorf("%d answers", len(c.answers))
	}
}

// TestClientsAreCheckedByOCSP is the same in handshakes, new and resumed.
func TestClientsAreCheckedByOCSP(t *testing.T) {
	ca, r, cert, _ := askedClient(t)
	serverCA := newAuthority(t, "server root", nil, nil)
	check := &OCSPCheck{}
	server := serverConfig(t, ServerOptions{
		Store: storeOf(t, serverCA.issue(t, nil, nil, "a.example")), ClientAuth: &ClientAuth{Roots: ca.loadRoots(t), OCSP: check},
	})
	client := &tls.Config{RootCAs: serverCA.roots(), ServerName: "a.example", Certificates: []tls.Certificate{cert}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	r.send(ca.answer(t, cert.Leaf, nil))
	mustShake(t, server, client)
	if ss, _ := mustShake(t, server, client); !ss.DidResume || r.asked.Load() != 1 {
		t.Errorf("resumed %v, asked %d times", ss.DidResume, r.asked.Load())
	}
	r.send(ca.answer(t, cert.Leaf, status(ocsp.Revoked)))
	check.mu.Lock()
	clear(check.answers)
	check.mu.Unlock()
	for range 2 { // a resumed session, and a new one
		_, _, err, clientErr := shake(t, server, client)
		if !errors.Is(Diagnose(err), ErrRevoked) || clientErr == nil || !strings.Contains(clientErr.Error(), "bad certificate") {
			t.Errorf("%v; the client gets %v", err, clientErr)
		}
		client.ClientSessionCache = nil
	}
}
