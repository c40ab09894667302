package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/bcrypt"
)

// hashed returns a hash of a password at the least cost, as htpasswd writes it.
func hashed(t testing.TB, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return "$2y" + strings.TrimPrefix(string(h), "$2a")
}

// verify waits for the result of Verify.
func verify(t *testing.T, u *Users, name, password string) bool {
	t.Helper()
	done := make(chan bool, 1)
	if err := u.Verify(name, password, func(ok bool) { done <- ok }); err != nil {
		t.Fatal(err)
	}
	return <-done
}

func TestUsersOfAFile(t *testing.T) {
	u, err := ReadUsers(strings.NewReader("# comment\n\nann:" + hashed(t, "secret") + "\nbob:" + hashed(t, "") + ":more\r\n"))
	if err != nil || u.Len() != 2 {
		t.Fatalf("%v", err)
	}
	for _, c := range []struct {
		name, password string
		want           bool
	}{
		{"ann", "secret", true},
		{"ann", "secret2", false},
		{"ann", "", false},
		{"bob", "", true},
		{"eve", "secret", false}, // the hash that unknown names are compared with may fit
		{"annsecret", "", false},
		{"", "", false},
	} {
		if got := u.Check(c.name, c.password); got != Unknown {
			t.Errorf("%q %q before: %d", c.name, c.password, got)
		}
		if got := verify(t, u, c.name, c.password); got != c.want {
			t.Errorf("%q %q: %v", c.name, c.password, got)
		}
		if got := u.Check(c.name, c.password); (got == Granted) != c.want {
			t.Errorf("%q %q afterwards: %d", c.name, c.password, got)
		}
	}
	same, err := ReadUsers(strings.NewReader("x:" + hashed(t, "a")))
	if err != nil || u.Same(same) || !u.Same(u) {
		t.Errorf("another file is the same: %v", err)
	}
}

func TestMistakesInAFileOfUsers(t *testing.T) {
	ok := hashed(t, "a")
	for _, c := range []struct{ file, want string }{
		{"", "line 1: there is no user"},
		{"ann", "line 1: no name and hash"},
		{"\n:" + ok, "line 2: no name and hash"},
		{"ann:" + ok + "\nann:" + ok, `line 2: user "ann" is there twice`},
		{"ann:$apr1$abc$def", "not one of bcrypt"},
		{"ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "not one of bcrypt"},
		{"ann:plain", "not one of bcrypt"},
		{"ann:$2", "is wrong"},
		{"ann:$2y$10$short", "is wrong"},
		{"ann:" + strings.Replace(ok, "$04$", "$31$", 1), "has cost 31; at most 14"},
		{"ann:" + strings.Repeat("x", 5000), "token too long"},
	} {
		_, err := ReadUsers(strings.NewReader(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: %v, want %q", c.file, err, c.want)
		}
	}
	_, err := ReadUsers(strings.NewReader("a\nb\nc:" + ok))
	if e := new(LineError); !errors.As(err, &e) || len(err.(interface{ Unwrap() []error }).Unwrap()) != 2 {
		t.Errorf("not all lines are reported: %v", err)
	}
}

func TestLoginsThatAreAlikeAreComputedOnceAndTooManyAreRefused(t *testing.T) {
	u, err := ReadUsers(strings.NewReader("ann:" + hashed(t, "secret")))
	if err != nil {
		t.Fatal(err)
	}
	for range cap(u.running) { // nothing is computed until they are given back
		u.running <- struct{}{}
	}
	var all sync.WaitGroup
	granted := make(chan bool, maxPending)
	for range maxPending {
		all.Add(1)
		if err := u.Verify("ann", "secret", func(ok bool) { granted <- ok; all.Done() }); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Verify("ann", "secret", nil); !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	if len(u.flights) != 1 {
		t.Errorf("%d hashes are computed", len(u.flights))
	}
	for range cap(u.running) {
		<-u.running
	}
	all.Wait()
	for range maxPending {
		if !<-granted {
			t.Fatal("a login was refused")
		}
	}
	if n := u.pending.Load(); n != 0 {
		t.Errorf("%d are pending", n)
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	u := &Users{}
	u.known.Store(&map[login]bool{})
	for i := range 3 * maxRemembered {
		u.remember(u.login(fmt.Sprint(i), ""))
		if n := len(*u.known.Load()); n > maxRemembered {
			t.Fatalf("%d logins are remembered", n)
		}
		if i%512 == 0 && u.Check(fmt.Sprint(i), "") != Granted {
			t.Fatalf("login %d is forgotten at once", i)
		}
	}
}

func TestCredentialsOfAField(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, c := range []struct {
		field, name, password string
		ok                    bool
	}{
		{"Basic " + b64("ann:secret"), "ann", "secret", true},
		{"basic  " + b64("ann:se:cret"), "ann", "se:cret", true},
		{"BASIC " + b64(":"), "", "", true},
		{"Basic " + b64("ann"), "ann", "", false},
		{"Basic", "", "", false},
		{"Basic ***", "", "", false},
		{"Bearer " + b64("ann:secret"), "", "", false},
		{"", "", "", false},
	} {
		name, password, ok := Credentials(c.field)
		if name != c.name || password != c.password || ok != c.ok {
			t.Errorf("%q: %q %q %v", c.field, name, password, ok)
		}
	}
}

// BenchmarkKnownLogin is what a login costs a loop.
func BenchmarkKnownLogin(b *testing.B) {
	u := &Users{}
	u.known.Store(&map[login]bool{})
	for i := range 1000 {
		u.remember(u.login(fmt.Sprint(i), "password"))
	}
	field := "Basic " + base64.StdEncoding.EncodeToString([]byte("500:password"))
	b.ReportAllocs()
	for b.Loop() {
		name, password, _ := Credentials(field)
		if u.Check(name, password) != Granted {
			b.Fatal("refused")
		}
	}
}
