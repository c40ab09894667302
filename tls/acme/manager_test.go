package acme

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	stdtls "crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mholt/acmez/v3/acme"

	"github.com/millrace/millrace/tls"
)

// refusing is an authority that fails every request, and counts them.
func refusing(t *testing.T) (url string, asked func() int) {
	var mu sync.Mutex
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		n++
		mu.Unlock()
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"type":"urn:ietf:params:acme:error:rateLimited","detail":"come back later"}`))
	}))
	t.Cleanup(s.Close)
	return s.URL, func() int { mu.Lock(); defer mu.Unlock(); return n }
}

// newManager returns a manager whose clock is the test's.
func newManager(t *testing.T, dir, directory string, now *time.Time) *Manager {
	t.Helper()
	m, err := New(Options{Directory: directory, AgreeToTerms: true, Dir: dir, Store: &tls.Store{}, now: func() time.Time { return *now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func TestOptionsAndNames(t *testing.T) {
	good := Options{Directory: "http://192.0.2.1/", AgreeToTerms: true, Dir: t.TempDir(), Store: &tls.Store{}}
	for what, change := range map[string]func(*Options){
		"no directory": func(o *Options) { o.Directory = "" }, "no agreement": func(o *Options) { o.AgreeToTerms = false },
		"no folder":    func(o *Options) { o.Dir = "" },
		"no challenge": func(o *Options) { o.NoHTTP, o.NoTLS = true, true },
	} {
		o := good
		change(&o)
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", what, err)
		}
	}
	m, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	m.o.Store = nil
	if err := m.Manage("a.example"); !errors.Is(err, ErrOptions) {
		t.Errorf("no store: %v", err)
	}
	m.o.Store = good.Store
	for _, name := range []string{"*.a.example", "a b.example", "localhost", "", "-a.example", "a..example", "../../etc.passwd", strings.Repeat("a", 64) + ".example"} {
		if err := m.Manage(name); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := m.Manage(); !errors.Is(err, ErrName) {
		t.Error(err)
	}
	if err := errors.Join(m.Manage("A.example."), m.Manage("a.example"), m.Manage("a.example", "b.example"), m.Manage("2001:db8::1")); err != nil || len(m.Status()) != 3 {
		t.Errorf("%v, %+v", err, m.Status())
	}
	if _, err := New(good); !errors.Is(err, ErrLocked) {
		t.Error("a second manager of the folder:", err)
	}
	_ = m.Close()
	again, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// TestFailuresAreTriedAgainLaterAndLater also restarts: the pause is not forgotten.
func TestFailuresAreTriedAgainLaterAndLater(t *testing.T) {
	url, asked := refusing(t)
	dir := t.TempDir()
	now := time.Now()
	m := newManager(t, dir, url, &now)
	var events []Event
	m.o.Report = func(e Event) { events = append(events, e) }
	if err := m.Manage("a.example"); err != nil {
		t.Fatal(err)
	}
	last := time.Duration(0)
	for i := range 14 {
		m.Renew(t.Context())
		st := m.Status()[0]
		if st.Failures != i+1 || st.LastErr == "" || len(events) != i+1 || events[i].Err == nil || events[i].Renewal || !events[i].Next.Equal(st.Next) {
			t.Fatalf("%d: %+v %+v", i, st, events)
		}
		pause := st.Next.Sub(now)
		if want := min(firstRetry<<i, mostRetry); pause != want || pause < last {
			t.Errorf("pause %d is %v, want %v", i, pause, want)
		}
		last = pause
		n := asked()
		now = st.Next.Add(-time.Second)
		if m.Renew(t.Context()); asked() != n {
			t.Error("asked too early")
		}
		now = st.Next
	}
	m.Renew(t.Context())
	next := m.Status()[0].Next
	_ = m.Close()
	n := asked()
	m = newManager(t, dir, url, &now)
	if err := m.Manage("a.example"); err != nil {
		t.Fatal(err)
	}
	m.Renew(t.Context())
	if st := m.Status()[0]; st.Failures != 15 || !st.Next.Equal(next) || asked() != n {
		t.Errorf("after a restart: %+v, asked %d times", st, asked()-n)
	}
}

// TestTheEndOfAContextIsNoFailure keeps a restart from delaying what it interrupted.
func TestTheEndOfAContextIsNoFailure(t *testing.T) {
	url, _ := refusing(t)
	now := time.Now()
	m := newManager(t, t.TempDir(), url, &now)
	if err := m.Manage("a.example"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m.attend(ctx, m.managed[0])
	if st := m.Status()[0]; st.Failures != 0 || st.Next.After(now) {
		t.Errorf("%+v", st)
	}
}

// stored puts a certificate for names into a manager's folder, valid from..until.
func stored(t *testing.T, m *Manager, from, until time.Time, names ...string) *managed {
	t.Helper()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(from.Unix()), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotBefore: from, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file, _, err := pairOf(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key)
	if err != nil {
		t.Fatal(err)
	}
	c := &managed{names: names}
	if err := os.MkdirAll(filepath.Dir(m.base(c)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.pairPath(c), file, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRenewalIsAtTwoThirdsOfTheLifeOrWhenTheAuthoritySays(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	m := newManager(t, t.TempDir(), "http://192.0.2.1/", &now)
	stored(t, m, now, now.Add(90*24*time.Hour), "a.example")
	if err := m.Manage("a.example"); err != nil {
		t.Fatal(err)
	}
	c := m.managed[0]
	if want := now.Add(60 * 24 * time.Hour); !c.due().Equal(want) || c.status().FromARI {
		t.Errorf("due %v, want %v", c.due(), want)
	}
	if st := m.o.Store.Status(); len(st) != 1 || st[0].ID != "acme:a.example" {
		t.Errorf("%+v", st)
	}
	if ask := c.nextARI(); ask.After(now) {
		t.Error("does not ask the authority")
	}
	window := func(from, until, selected time.Duration, again *time.Time) (info acme.RenewalInfo) {
		info.SuggestedWindow.Start, info.SuggestedWindow.End, info.SelectedTime = now.Add(from), now.Add(until), now.Add(selected)
		info.RetryAfter = again
		return info
	}
	soon, late := now.Add(time.Second), now.Add(1000*time.Hour)
	for i, tc := range []struct {
		info     acme.RenewalInfo
		err      error
		due, ask time.Duration
	}{
		{err: errors.New("503"), due: 60 * 24 * time.Hour, ask: time.Hour},
		{err: acme.ErrUnsupported, due: 60 * 24 * time.Hour, ask: mostARI},
		{info: window(time.Hour, 3*time.Hour, 2*time.Hour, &soon), due: 2 * time.Hour, ask: leastARI},
		{info: window(time.Hour, 3*time.Hour, 2*time.Hour+time.Minute, &late), due: 2 * time.Hour, ask: mostARI}, // the same window
		{err: errors.New("503"), due: 2 * time.Hour, ask: time.Hour},                                             // what it said holds
		{info: window(time.Hour, -time.Hour, 0, nil), due: 2 * time.Hour, ask: defaultARI},                       // not a window
		{info: window(-3*time.Hour, -time.Hour, -2*time.Hour, nil), due: -2 * time.Hour, ask: defaultARI},        // renew now
	} {
		c.noteARI(tc.info, tc.err, c.leaf(), now)
		if got := c.due().Sub(now); got != tc.due {
			t.Errorf("%d: due in %v, want %v", i, got, tc.due)
		}
		if got := c.nextARI().Sub(now); got != tc.ask {
			t.Errorf("%d: asks in %v, want %v", i, got, tc.ask)
		}
	}
	if !c.status().FromARI || !c.namesReplaced() {
		t.Error("not by ARI")
	}
	// A certificate that was just issued stays for a while, even so.
	c.ended(errors.New("refused"), now)
	c.ended(nil, now)
	if st := c.status(); st.Failures != 0 || st.LastErr != "" {
		t.Errorf("after success: %+v", st)
	}
	if got := c.due().Sub(now); got != leastLife {
		t.Errorf("a new certificate is renewed after %v", got)
	}
	c.state.NotBefore = time.Time{}
	// The next certificate has renewal information of its own.
	leaf := *c.leaf()
	leaf.SerialNumber = big.NewInt(7)
	c.cert = &leaf
	if c.namesReplaced() || c.nextARI().After(now) || !c.due().Equal(now.Add(60*24*time.Hour)) {
		t.Error("the information of the certificate before is used")
	}
}

func TestFilesAreSafe(t *testing.T) {
	now := time.Now()
	dir := filepath.Join(t.TempDir(), "new")
	m := newManager(t, dir, "http://192.0.2.1/", &now)
	key, err := m.accountKey()
	if err != nil {
		t.Fatal(err)
	}
	again, err := m.accountKey()
	if err != nil || !key.(*ecdsa.PrivateKey).Equal(again) {
		t.Error("the account's key changed:", err)
	}
	c := stored(t, m, now, now.Add(time.Hour), "a.example")
	if err := m.saveState(c); err != nil {
		t.Fatal(err)
	}
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		info, _ := d.Info()
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v", path, info.Mode())
		}
		return err
	})
	_ = os.Chmod(m.pairPath(c), 0o644)
	if err := m.Manage("a.example"); err == nil || !strings.Contains(err.Error(), "chmod o= ") {
		t.Error("a key that everybody reads:", err)
	}
	_ = os.WriteFile(m.pairPath(c), []byte("cut"), 0o600)
	_ = os.Chmod(m.pairPath(c), 0o600)
	if err := m.Manage("a.example"); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Error("a file that is cut:", err)
	}
	_ = os.Remove(m.pairPath(c))
	_ = os.WriteFile(m.base(c)+".json", []byte("{cut"), 0o600)
	if err := m.Manage("a.example"); err != nil {
		t.Error("a schedule that is cut:", err)
	}
	path := filepath.Join(m.home(), "account.pem")
	for _, text := range []string{"", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		_ = os.WriteFile(path, []byte(text), 0o600)
		if _, err := m.accountKey(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWhatWasIssuedIsChecked(t *testing.T) {
	leaf := &x509.Certificate{DNSNames: []string{"a.example"}, NotAfter: time.Now().Add(time.Hour)}
	if err := checkIssue(leaf, []string{"a.example"}, time.Now()); err != nil {
		t.Error(err)
	}
	if err := checkIssue(leaf, []string{"a.example", "b.example"}, time.Now()); !errors.Is(err, ErrBadIssue) {
		t.Error(err)
	}
	if err := checkIssue(leaf, []string{"a.example"}, time.Now().Add(2*time.Hour)); !errors.Is(err, ErrBadIssue) {
		t.Error(err)
	}
	key, _ := newKey()
	if _, _, err := pairOf([]byte("no chain"), key); !errors.Is(err, ErrBadIssue) {
		t.Error(err)
	}
}

func TestChallengesAreAnsweredWhileTheyRun(t *testing.T) {
	now := time.Now()
	m := newManager(t, t.TempDir(), "http://192.0.2.1/", &now)
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	ask := func(h http.Handler, method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w
	}
	c := acme.Challenge{Type: acme.ChallengeTypeHTTP01, Token: "token", KeyAuthorization: "token.key", Identifier: acme.Identifier{Type: "dns", Value: "A.example"}}
	h := m.HTTPHandler(next)
	_ = httpSolver{m.solver}.Present(t.Context(), c)
	if w := ask(h, "GET", challengePath+"token"); w.Code != 200 || w.Body.String() != "token.key" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	for _, q := range [][2]string{{"GET", challengePath + "other"}, {"POST", challengePath + "token"}, {"GET", "/"}} {
		if w := ask(h, q[0], q[1]); w.Code != http.StatusTeapot {
			t.Errorf("%v: %d", q, w.Code)
		}
	}
	_ = httpSolver{m.solver}.CleanUp(t.Context(), c)
	if w := ask(m.HTTPHandler(nil), "GET", challengePath+"token"); w.Code != http.StatusNotFound {
		t.Error(w.Code)
	}

	own := &stdtls.Config{}
	server := &stdtls.Config{GetConfigForClient: func(*stdtls.ClientHelloInfo) (*stdtls.Config, error) { return own, nil }}
	m.Attach(server)
	hello := &stdtls.ClientHelloInfo{ServerName: "a.Example", SupportedProtos: []string{"acme-tls/1"}}
	is := func(h *stdtls.ClientHelloInfo, want bool) {
		t.Helper()
		got, err := server.GetConfigForClient(h)
		if err != nil || (got != own) != want || want && got.NextProtos[0] != "acme-tls/1" {
			t.Errorf("%+v: %v, %v", h, got, err)
		}
	}
	is(hello, false)
	_ = tlsSolver{m.solver}.Present(t.Context(), c)
	is(hello, true)
	is(&stdtls.ClientHelloInfo{ServerName: "b.example", SupportedProtos: hello.SupportedProtos}, false)
	is(&stdtls.ClientHelloInfo{ServerName: "a.example", SupportedProtos: []string{"acme-tls/1", "h2"}}, false)
	is(&stdtls.ClientHelloInfo{ServerName: "a.example"}, false)
	_ = tlsSolver{m.solver}.CleanUp(t.Context(), c)
	is(hello, false)
	for addr, want := range map[string]string{
		"192.0.2.1": "1.2.0.192.in-addr.arpa", "a.EXAMPLE": "a.example",
		"2001:db8::1": "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa",
	} {
		if got := helloName(acme.Identifier{Value: addr}); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

// TestSetChangesWhatIsManaged has names come, stay with another store, and go.
func TestSetChangesWhatIsManaged(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	m := newManager(t, dir, "http://192.0.2.1/", &now)
	one, two := &tls.Store{}, &tls.Store{}
	if err := m.Set([]Certificate{{Names: []string{"A.example."}, Store: one, Default: true}, {Names: []string{"b.example"}, Store: one}}); err != nil {
		t.Fatal(err)
	}
	first := m.managed[0]
	stored(t, m, now, now.Add(time.Hour), "a.example")
	if err := m.restore(first); err != nil {
		t.Fatal(err)
	}
	if n := len(one.Status()); n != 1 {
		t.Errorf("%d certificates in the store", n)
	}
	list := []Certificate{{Names: []string{"a.example"}, Store: two}, {Names: []string{"a.example"}, Store: one, Default: true}, {Names: []string{"c.example"}, Store: two}}
	if err := m.Set(list); err != nil {
		t.Fatal(err)
	}
	if len(m.managed) != 2 || m.managed[0] != first || len(first.to) != 2 || len(two.Status()) != 1 || m.Status()[1].Names[0] != "c.example" {
		t.Errorf("%+v", m.Status())
	}
	if err := m.Set([]Certificate{{Names: []string{"localhost"}, Store: one}}); !errors.Is(err, ErrName) || len(m.managed) != 2 {
		t.Errorf("with a wrong name: %v, %d are managed", err, len(m.managed))
	}
	if err := m.Set(nil); err != nil || len(m.Status()) != 0 {
		t.Errorf("with none: %v", err)
	}
	three := &tls.Store{} // what is stored is there without an order
	if err := m.Restore(Certificate{Names: []string{"a.example"}, Store: three, Default: true}); err != nil || len(three.Status()) != 1 || !three.Status()[0].Default {
		t.Errorf("restored: %v, %+v", err, three.Status())
	}
	if err := m.Restore(Certificate{Names: []string{"new.example"}, Store: three}); err != nil || len(m.Status()) != 0 {
		t.Errorf("one that is not stored: %v", err)
	}
}
