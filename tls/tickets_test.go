package tls

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// instance is a server with a clock of its own.
type instance struct {
	keys   *TicketKeys
	config *tls.Config
	ahead  atomic.Int64 // of the clock, in nanoseconds
}

func newInstance(t *testing.T, s *Store, secrets ...[]byte) *instance {
	t.Helper()
	keys, err := NewTicketKeys(time.Hour, secrets...)
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{keys: keys}
	begin := time.Now().Truncate(time.Hour).Add(30 * time.Minute) // the middle of an epoch
	keys.now = func() time.Time { return begin.Add(time.Duration(i.ahead.Load())) }
	i.config = serverConfig(t, ServerOptions{Store: s, Tickets: keys})
	return i
}

func TestInstancesShareTicketsByOneSecret(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	s := storeOf(t, ca.issue(t, nil, nil, "a.example"))
	secret, next := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 40)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		client := func() *tls.Config {
			return &tls.Config{RootCAs: ca.roots(), ServerName: "a.example", MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		}
		resumes := func(what string, from, to *instance, want bool) {
			t.Helper()
			c := client()
			if ss, _ := mustShake(t, from.config, c); ss.DidResume {
				t.Fatalf("%s: resumed nothing", what)
			}
			if ss, _ := mustShake(t, to.config, c); ss.DidResume != want {
				t.Errorf("%#x, %s: resumed %v, want %v", version, what, ss.DidResume, want)
			}
		}
		a, b := newInstance(t, s, secret), newInstance(t, s, secret)
		resumes("same secret", a, b, true)
		resumes("other secret", a, newInstance(t, s, next), false)
		resumes("new secret appended", newInstance(t, s, next, secret), newInstance(t, s, secret, next), true)
		for hours, want := range map[int]bool{0: true, 1: true, 2: true, 3: false, -1: true, -2: false} {
			late := newInstance(t, s, secret)
			late.ahead.Store(int64(hours) * int64(time.Hour))
			resumes(time.Duration(hours*int(time.Hour)).String()+" later", a, late, want)
		}
		// Keys change while a config is in use.
		c := client()
		mustShake(t, a.config, c)
		a.ahead.Store(int64(5 * time.Hour))
		if ss, _ := mustShake(t, a.config, c); ss.DidResume {
			t.Error("a ticket of five hours ago is accepted")
		}
		if ss, _ := mustShake(t, a.config, c); !ss.DidResume {
			t.Error("the ticket of the new epoch is not accepted")
		}
		// So do secrets.
		if err := a.keys.SetSecrets(next); err != nil {
			t.Fatal(err)
		}
		if ss, _ := mustShake(t, a.config, c); ss.DidResume {
			t.Error("a ticket of the secret before is accepted")
		}
	}
}

func TestAttachLeavesOtherWrappersAlone(t *testing.T) {
	keys, _ := NewTicketKeys(0, bytes.Repeat([]byte{1}, 32))
	own := &tls.Config{WrapSession: func(tls.ConnectionState, *tls.SessionState) ([]byte, error) { return nil, errors.New("own") }}
	outer := &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return own, nil }}
	keys.Attach(own)
	keys.Attach(outer)
	if _, err := own.WrapSession(tls.ConnectionState{}, nil); err == nil || err.Error() != "own" {
		t.Error(err)
	}
	if c, _ := outer.GetConfigForClient(nil); c != own {
		t.Error("a config with a wrapper of its own was copied")
	}
}

func TestTicketSecretsFromFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tickets")
	text := func(fill ...byte) []byte {
		b := []byte("# secrets\n\n")
		for _, f := range fill {
			b = append(b, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{f}, 32))+"\n"...)
		}
		return b
	}
	writeFile(t, path, text(1, 2))
	keys, err := LoadTicketKeys(0, path)
	if err != nil {
		t.Fatal(err)
	}
	if got := *keys.secrets.Load(); len(got) != 2 || got[1][0] != 2 || keys.period != TicketPeriod {
		t.Errorf("%x", got)
	}
	for what, b := range map[string][]byte{"empty": nil, "no base64": []byte("!!!secret!!!\n"), "short": []byte(base64.StdEncoding.EncodeToString(make([]byte, 31)))} {
		writeFile(t, path, b)
		if err := keys.Reload(); !errors.Is(err, ErrTicketSecret) || strings.Contains(err.Error(), "!!!") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := LoadTicketKeys(0, path); !errors.Is(err, ErrTicketSecret) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := *keys.secrets.Load(); len(got) != 2 {
		t.Error("a bad file replaced the secrets")
	}
	writeFile(t, path, text(3))
	if err := keys.Reload(); err != nil || (*keys.secrets.Load())[0][0] != 3 {
		t.Error(err)
	}
	_ = os.Chmod(path, 0o644)
	if err := keys.Reload(); err == nil || !strings.Contains(err.Error(), "chmod o= ") {
		t.Error("a file that everybody reads:", err)
	}
}

// TestKeysAreThoseOfTheFormula pins the derivation: instances of other versions must agree.
func TestKeysAreThoseOfTheFormula(t *testing.T) {
	got := ticketKey(bytes.Repeat([]byte{0x0b}, 32), 20000)
	if want := ticketVector; base64.StdEncoding.EncodeToString(got[:]) != want {
		t.Errorf("%s, want %s", base64.StdEncoding.EncodeToString(got[:]), want)
	}
	if keys := epochKeys([][]byte{{1}}, 10); len(keys) != 4 || keys[0] != ticketKey([]byte{1}, 10) {
		t.Error("the first key is not that of the epoch")
	}
}

// ticketVector was computed with Python's hmac: extract with a salt of zeros, expand once.
const ticketVector = "GpOzzNg5ZONd6PjPuhz+O011a0uCdn6SgHJLceP1HdI="
