package tls

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"
)

// mustStaple is an alteration of templates.
func mustStaple(c *x509.Certificate) {
	c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: oidTLSFeature, Value: []byte{0x30, 3, 2, 1, 5}})
}

// answer returns a response about leaf, good and current unless change says otherwise.
func (a *authority) answer(t testing.TB, leaf *x509.Certificate, change func(*ocsp.Response)) []byte {
	t.Helper()
	return a.answerBy(t, a.cert, a.key, leaf, change)
}

// answerBy is answer signed by a responder.
func (a *authority) answerBy(t testing.TB, responder *x509.Certificate, key crypto.Signer, leaf *x509.Certificate, change func(*ocsp.Response)) []byte {
	t.Helper()
	r := ocsp.Response{Status: ocsp.Good, SerialNumber: leaf.SerialNumber, ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}
	if !responder.Equal(a.cert) {
		r.Certificate = responder
	}
	if change != nil {
		change(&r)
	}
	b, err := ocsp.CreateResponse(a.cert, responder, r, key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOnlyGoodCurrentResponsesOfTheIssuerCount(t *testing.T) {
	ca, other := newAuthority(t, "root", nil, nil), newAuthority(t, "other", nil, nil)
	leaf := ca.issue(t, nil, nil, "a.example").Leaf
	key := newKey(t)
	responder := func(change func(*x509.Certificate)) *x509.Certificate {
		return ca.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "responder"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageOCSPSigning}}, key.Public(), change)
	}
	unauthorized := responder(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	stale := responder(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	set := func(status int, from, until time.Duration) func(*ocsp.Response) {
		return func(r *ocsp.Response) {
			r.Status, r.ThisUpdate, r.NextUpdate = status, time.Now().Add(from), time.Now().Add(until)
		}
	}
	for what, tc := range map[string]struct {
		b    []byte
		want error
	}{
		"good":                    {ca.answer(t, leaf, nil), nil},
		"of a responder":          {ca.answerBy(t, responder(nil), key, leaf, nil), nil},
		"unauthorized responder":  {ca.answerBy(t, unauthorized, key, leaf, nil), ErrBadResponse},
		"expired responder":       {ca.answerBy(t, stale, key, leaf, nil), ErrBadResponse},
		"other authority":         {other.answer(t, leaf, nil), ErrBadResponse},
		"other certificate":       {ca.answer(t, ca.cert, nil), ErrBadResponse},
		"expired":                 {ca.answer(t, leaf, set(ocsp.Good, -2*time.Hour, -time.Second)), ErrStaleResponse},
		"of the future":           {ca.answer(t, leaf, set(ocsp.Good, time.Hour, 2*time.Hour)), ErrStaleResponse},
		"clock a little behind":   {ca.answer(t, leaf, set(ocsp.Good, time.Minute, time.Hour)), nil},
		"old, and valid for ever": {ca.answer(t, leaf, set(ocsp.Good, -15*24*time.Hour, 1000*time.Hour)), ErrStaleResponse},
		"revoked":                 {ca.answer(t, leaf, set(ocsp.Revoked, -time.Minute, time.Hour)), ErrRevoked},
		"revoked, and expired":    {ca.answer(t, leaf, set(ocsp.Revoked, -2*time.Hour, -time.Hour)), ErrStaleResponse},
		"unknown":                 {ca.answer(t, leaf, set(ocsp.Unknown, -time.Minute, time.Hour)), ErrStatusUnknown},
		"no end":                  {ca.answer(t, leaf, func(r *ocsp.Response) { r.NextUpdate = time.Time{} }), ErrStaleResponse},
		"try later":               {ocsp.TryLaterErrorResponse, ErrBadResponse},
		"empty":                   {nil, ErrBadResponse},
		"too large":               {make([]byte, maxResponse+1), ErrBadResponse},
	} {
		v, err := checkResponse(tc.b, leaf, ca.cert, time.Now())
		if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%s: %v, want %v", what, err, tc.want)
		}
		if err == nil && (v.until.After(time.Now().Add(maxStapleAge)) || !v.until.After(time.Now())) {
			t.Errorf("%s: until %v", what, v.until)
		}
	}
}

// responder is an OCSP responder whose reply tests choose.
type responder struct {
	*httptest.Server
	reply atomic.Pointer[func(http.ResponseWriter)]
	asked atomic.Int64
}

func newResponder(t *testing.T) *responder {
	r := &responder{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.asked.Add(1)
		b, _ := io.ReadAll(q.Body)
		if _, err := ocsp.ParseRequest(b); err != nil || q.Header.Get("Content-Type") != "application/ocsp-request" {
			t.Errorf("request %x: %v", b, err)
		}
		(*r.reply.Load())(w)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *responder) set(f func(http.ResponseWriter)) { r.reply.Store(&f) }
func (r *responder) send(b []byte)                   { r.set(func(w http.ResponseWriter) { _, _ = w.Write(b) }) }

func TestStaplesAreFetchedSentAndNeverOutliveTheirTime(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	r := newResponder(t)
	cert := ca.issue(t, nil, func(c *x509.Certificate) { c.OCSPServer = []string{r.URL}; mustStaple(c) }, "a.example")
	store := storeOf(t, cert)
	var mu sync.Mutex
	var failures []error
	stapler := &Stapler{Store: store, Report: func(id string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if id != "a" {
			t.Errorf("ID %q", id)
		}
		failures = append(failures, err)
	}}
	server := serverConfig(t, ServerOptions{Store: store})
	client := clientConfig(t, ClientOptions{ServerName: "a.example", Roots: ca.loadRoots(t)})
	refresh := func() { // whatever the plan is
		stapler.mu.Lock()
		for _, p := range stapler.plans {
			p.next = time.Time{}
		}
		stapler.mu.Unlock()
		stapler.Refresh(t.Context())
	}

	good := ca.answer(t, cert.Leaf, nil)
	r.send(good)
	refresh()
	if _, cs := mustShake(t, server, client); string(cs.OCSPResponse) != string(good) {
		t.Fatalf("staple %x", cs.OCSPResponse)
	}
	if st := store.Status()[0]; !st.MustStaple || st.StapleUntil.IsZero() || st.StapleFrom.After(time.Now()) {
		t.Errorf("%+v", st)
	}
	asked := r.asked.Load()
	stapler.Refresh(t.Context())
	if r.asked.Load() != asked {
		t.Error("asked again before half of the life of the response")
	}
	elsewhere := newResponder(t)
	elsewhere.send(good)
	// What the responder does wrong leaves the response in place.
	for what, reply := range map[string]func(http.ResponseWriter){
		"error":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"garbage": func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) },
		"expired": func(w http.ResponseWriter) {
			_, _ = w.Write(ca.answer(t, cert.Leaf, func(r *ocsp.Response) { r.NextUpdate = time.Now().Add(-time.Second) }))
		},
		"endless": func(w http.ResponseWriter) { _, _ = io.Copy(w, io.LimitReader(zeros{}, 10<<20)) },
		"redirect": func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(http.StatusFound)
		},
	} {
		failures = nil
		r.set(reply)
		refresh()
		if len(failures) != 1 || !errors.Is(failures[0], ErrBadResponse) && !errors.Is(failures[0], ErrStaleResponse) {
			t.Errorf("%s: %v", what, failures)
		}
		if _, cs := mustShake(t, server, client); string(cs.OCSPResponse) != string(good) {
			t.Errorf("%s: the response is gone", what)
		}
	}
	if elsewhere.asked.Load() != 0 {
		t.Error("a redirection was followed")
	}
	// A slow one holds no handshake and ends with the context.
	hang := make(chan struct{})
	r.set(func(http.ResponseWriter) { <-hang })
	stapler.mu.Lock()
	for _, p := range stapler.plans {
		p.next = time.Time{}
	}
	stapler.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { stapler.Refresh(ctx); close(done) }()
	mustShake(t, server, client)
	cancel()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("Refresh does not end with its context")
	}
	close(hang)
	// The same certificate, loaded again, keeps its response; another one has none.
	if err := store.Set("a", cert, true); err != nil {
		t.Fatal(err)
	}
	mustShake(t, server, client)
	// Time passes while the responder is away: the response is no longer sent.
	e := store.entries["a"]
	e.attach(good, time.Now().Add(-time.Hour), time.Now().Add(-time.Second))
	if c, _ := store.GetCertificate(modern("a.example")); c.OCSPStaple != nil {
		t.Error("an expired response is sent")
	}
	if st := store.Status()[0]; !st.StapleUntil.IsZero() {
		t.Errorf("%+v", st)
	}
	if _, _, _, err := shake(t, server, client); !errors.Is(err, ErrNoStaple) {
		t.Errorf("the client accepts a must-staple certificate without response: %v", err)
	}
	// Revoked: the response that says so is not sent, and neither is the old one.
	for _, status := range []int{ocsp.Revoked, ocsp.Unknown} {
		r.send(good)
		refresh()
		if c, _ := store.GetCertificate(modern("a.example")); c.OCSPStaple == nil {
			t.Fatal("no response")
		}
		failures = nil
		r.send(ca.answer(t, cert.Leaf, func(r *ocsp.Response) { r.Status = status }))
		refresh()
		if c, _ := store.GetCertificate(modern("a.example")); c.OCSPStaple != nil || len(failures) != 1 {
			t.Errorf("status %d: still sent; %v", status, failures)
		}
	}
}

// zeros is a reader without end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestAMustStapleCertificateWithoutResponseIsTheSecondChoice(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	demands, plain := ca.issue(t, nil, mustStaple, "a.example"), ca.issue(t, rsaKey(), nil, "a.example")
	s := storeOf(t, demands, plain)
	if c, _ := s.GetCertificate(modern("a.example")); !c.Leaf.Equal(plain.Leaf) {
		t.Error("the one that clients refuse was chosen")
	}
	s.entries["a"].attach([]byte{1}, time.Now(), time.Now().Add(time.Hour))
	if c, _ := s.GetCertificate(modern("a.example")); !c.Leaf.Equal(demands.Leaf) || c.OCSPStaple == nil {
		t.Error("the one with a response was not chosen")
	}
}

func TestClientsCheckStaples(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	cert := ca.issue(t, nil, nil, "a.example")
	for what, tc := range map[string]struct {
		b    []byte
		want error
	}{
		"good": {ca.answer(t, cert.Leaf, nil), nil}, "none": {nil, nil},
		"revoked": {ca.answer(t, cert.Leaf, func(r *ocsp.Response) { r.Status = ocsp.Revoked }), ErrRevoked},
		"garbage": {[]byte("x"), ErrBadResponse},
	} {
		c := cert
		c.OCSPStaple = tc.b
		_, _, _, err := shake(t, &tls.Config{Certificates: []tls.Certificate{c}}, clientConfig(t, ClientOptions{ServerName: "a.example", Roots: ca.loadRoots(t)}))
		if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%s: %v, want %v", what, err, tc.want)
		}
	}
}

func TestASessionOutlivesTheResponseOfItsBegin(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	cert := ca.issue(t, nil, nil, "a.example")
	cert.OCSPStaple = ca.answer(t, cert.Leaf, nil)
	server := &tls.Config{Certificates: []tls.Certificate{cert}}
	client := clientConfig(t, ClientOptions{ServerName: "a.example", Roots: ca.loadRoots(t), Sessions: tls.NewLRUClientSessionCache(1)})
	mustShake(t, server, client)
	_, cs := mustShake(t, server, client)
	if !cs.DidResume || len(cs.OCSPResponse) == 0 {
		t.Fatalf("resumed %v, with a response of %d bytes", cs.DidResume, len(cs.OCSPResponse))
	}
	cs.OCSPResponse = ca.answer(t, cert.Leaf, func(r *ocsp.Response) { r.NextUpdate = time.Now().Add(-time.Second) }) // as time passes
	if err := CheckStaple(cs); err != nil {
		t.Error(err)
	}
	cs.DidResume = false
	if err := CheckStaple(cs); !errors.Is(err, ErrStaleResponse) {
		t.Error(err)
	}
}

func TestBackOffOfAStapler(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	r := newResponder(t)
	r.set(func(w http.ResponseWriter) { w.WriteHeader(500) })
	cert := ca.issue(t, nil, func(c *x509.Certificate) { c.OCSPServer = []string{r.URL} }, "a.example")
	store := storeOf(t, cert)
	s := &Stapler{Store: store}
	e := store.entries["a"]
	s.due(time.Now())
	plan := s.plans[e]
	var last time.Duration
	for range 20 {
		begin := time.Now()
		s.fetch(t.Context(), e, plan)
		pause := plan.next.Sub(begin)
		if pause < last || pause > stapleMost+time.Minute || pause < stapleRetry {
			t.Errorf("pause of %v after %v", pause, last)
		}
		last = pause - time.Second // less than the time that a request may take
	}
	if last < stapleMost-time.Minute {
		t.Errorf("the longest pause is %v", last)
	}
}

func FuzzCheckResponse(f *testing.F) {
	ca := newAuthority(f, "root", nil, nil)
	leaf := ca.issue(f, nil, nil, "a.example").Leaf
	now := time.Now()
	good := ca.answer(f, leaf, nil)
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := checkResponse(b, leaf, ca.cert, now); err == nil && !strings.Contains(string(b), string(leaf.SerialNumber.Bytes())) {
			t.Fatalf("%x is good", b)
		}
	})
}

// A response from elsewhere is sent as one of a Stapler is, if it is good and current.
func TestAResponseIsStapledByHand(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	cert := ca.issue(t, nil, nil, "a.example")
	if len(cert.Certificate) < 2 {
		cert.Certificate = append(cert.Certificate, ca.cert.Raw)
	}
	store := &Store{}
	if err := store.Set("a", cert, false); err != nil {
		t.Fatal(err)
	}
	stale := ca.answer(t, cert.Leaf, func(r *ocsp.Response) { r.ThisUpdate, r.NextUpdate = r.ThisUpdate.Add(-time.Hour), r.ThisUpdate })
	for id, want := range map[string]error{"a": ErrStaleResponse, "b": ErrUnusableCertificate} {
		if err := store.Staple(id, stale); !errors.Is(err, want) {
			t.Errorf("%s: %v", id, err)
		}
	}
	good := ca.answer(t, cert.Leaf, nil)
	if err := store.Staple("a", good); err != nil {
		t.Fatal(err)
	}
	if err := store.Staple("a", stale); err == nil {
		t.Error("a response that is not current is taken")
	}
	got, err := store.GetCertificate(&tls.ClientHelloInfo{ServerName: "a.example", SupportedVersions: []uint16{tls.VersionTLS13}, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}})
	if err != nil || string(got.OCSPStaple) != string(good) {
		t.Errorf("%d bytes, %v", len(got.OCSPStaple), err)
	}
	alone := cert
	alone.Certificate = cert.Certificate[:1]
	if err := store.Set("c", alone, false); err != nil {
		t.Fatal(err)
	}
	if err := store.Staple("c", good); !errors.Is(err, ErrNoResponder) {
		t.Errorf("without an issuer: %v", err)
	}
}
