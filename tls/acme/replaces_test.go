package acme

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mholt/acmez/v3/acme"
)

// orderRejecter is an authority that makes accounts and rejects every order. It records which
// certificates the orders say they replace. While it is unreachable, orders get no response.
type orderRejecter struct {
	mu          sync.Mutex
	replaces    []string
	unreachable bool
}

func (r *orderRejecter) serve(t *testing.T) (directory string) {
	mux := http.NewServeMux()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Replay-Nonce", "bm9uY2U")
		w.Header().Set("Content-Type", "application/json")
		mux.ServeHTTP(w, req)
	}))
	t.Cleanup(s.Close)
	mux.HandleFunc("/directory", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"newNonce":"%[1]s/nonce","newAccount":"%[1]s/account","newOrder":"%[1]s/order"}`, s.URL)
	})
	mux.HandleFunc("/nonce", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/account", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", s.URL+"/account/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"status":"valid"}`))
	})
	mux.HandleFunc("/order", func(w http.ResponseWriter, req *http.Request) {
		var jws struct{ Payload string }
		var order acme.Order
		if err := json.NewDecoder(req.Body).Decode(&jws); err != nil {
			t.Error(err)
		}
		payload, err := base64.RawURLEncoding.DecodeString(jws.Payload)
		if err != nil || json.Unmarshal(payload, &order) != nil {
			t.Errorf("%q: %v", payload, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.unreachable {
			panic(http.ErrAbortHandler)
		}
		r.replaces = append(r.replaces, order.Replaces)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"type":"urn:ietf:params:acme:error:unauthorized","detail":"another account"}`))
	})
	return s.URL + "/directory"
}

// set makes the authority unreachable for orders or reachable, and forgets the orders so far.
func (r *orderRejecter) set(unreachable bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replaces, r.unreachable = nil, unreachable
}

// orders returns which certificate each order says that it replaces.
func (r *orderRejecter) orders() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.replaces)
}

// TestARejectedReplacementDoesNotEndRenewal renews at an authority that rejects the orders, as one does
// that does not know the certificate or knows it as another account's (RFC 9773 5). Were each order to
// name the certificate, it would expire without a successor.
func TestARejectedReplacementDoesNotEndRenewal(t *testing.T) {
	var authority orderRejecter
	directory, dir := authority.serve(t), t.TempDir()
	now := time.Now().Truncate(time.Second)
	manage := func() *Manager {
		m := newManager(t, dir, directory, &now)
		if err := m.Manage("a.example"); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := newManager(t, dir, directory, &now)
	stored(t, m, now.Add(-89*24*time.Hour), now.Add(24*time.Hour), "a.example")
	_ = m.Close()
	m = manage()
	leaf := m.managed[0].leaf()
	id, err := acme.ARIUniqueIdentifier(leaf)
	if err != nil {
		t.Fatal(err)
	}
	var info acme.RenewalInfo
	info.SuggestedWindow.Start, info.SuggestedWindow.End, info.SelectedTime = now.Add(-3*time.Hour), now.Add(-time.Hour), now.Add(-2*time.Hour)
	m.managed[0].noteARI(info, nil, leaf, now)
	for i, attempt := range []struct {
		unreachable bool
		want        []string
	}{{want: []string{id}}, {want: []string{""}}, {want: []string{id}}, {want: []string{""}}, {unreachable: true}, {want: []string{id}}} {
		authority.set(attempt.unreachable)
		m.Renew(t.Context())
		if got := authority.orders(); !slices.Equal(got, attempt.want) {
			t.Errorf("attempt %d: orders that replace %q, want %q", i, got, attempt.want)
		}
		st := m.Status()[0]
		if st.Failures != i+1 {
			t.Fatalf("attempt %d: %+v", i, st)
		}
		now = st.Next
		_ = m.Close() // a restart does not forget it
		m = manage()
	}
}
