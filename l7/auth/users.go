package auth

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/bcrypt"
)

// Bounds of Users.
const (
	maxUsers = 100_000
	// maxCost bounds the work of one login: each step doubles it, and 14 takes about a second.
	maxCost = 14
	// maxRemembered bounds the logins that are known without another hash.
	maxRemembered = 4096
	// maxPending bounds the logins that wait for a hash.
	maxPending = 256
	maxLine    = 4096
)

// Users are the names and passwords of a file. Any goroutine may call its methods.
type Users struct {
	hashes map[string][]byte
	dummy  []byte // is compared with for names that are not there: an answer takes as long
	secret [32]byte

	known   atomic.Pointer[map[login]bool] // copied for each new one: a hash takes far longer
	pending atomic.Int64
	running chan struct{}

	mu      sync.Mutex
	flights map[login][]func(bool) // logins whose hash is being computed
}

// login is a hash of a name and a password, with a secret.
type login [sha256.Size]byte

// LineError is an error of a line of a file.
type LineError struct {
	Line int
	Err  string
	Hint string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Err) }

// ErrBusy reports that too many logins wait for their hash.
var ErrBusy = errors.New("auth: too many logins wait")

// ReadUsers reads an htpasswd file: lines of a name, a colon and a hash of bcrypt. Its errors are LineErrors, joined.
func ReadUsers(r io.Reader) (*Users, error) {
	u := &Users{hashes: map[string][]byte{}, running: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), flights: map[login][]func(bool){}}
	u.known.Store(&map[login]bool{})
	if _, err := rand.Read(u.secret[:]); err != nil {
		return nil, err
	}
	var errs []error
	in, cost := bufio.NewScanner(io.LimitReader(r, maxUsers*256)), 0
	in.Buffer(make([]byte, maxLine), maxLine)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, c, err := u.add(line)
		switch {
		case err != nil:
			errs = append(errs, &LineError{n, err.Error(), "`htpasswd -B -C 10 FILE NAME` writes such a line"})
		case len(u.hashes) > maxUsers:
			return nil, fmt.Errorf("more than %d users", maxUsers)
		case name != "" && c > cost:
			cost, u.dummy = c, u.hashes[name]
		}
	}
	if err := in.Err(); err != nil {
		errs = append(errs, err)
	}
	if len(u.hashes) == 0 && len(errs) == 0 {
		errs = append(errs, &LineError{1, "there is no user", "`htpasswd -c -B -C 10 FILE NAME` makes a file"})
	}
	return u, errors.Join(errs...)
}

// add enters a line.
func (u *Users) add(line string) (name string, cost int, err error) {
	name, hash, ok := strings.Cut(line, ":")
	hash, _, _ = strings.Cut(hash, ":") // some programs append more
	switch {
	case !ok || name == "":
		return "", 0, errors.New("no name and hash with a colon between")
	case u.hashes[name] != nil:
		return "", 0, fmt.Errorf("user %q is there twice", name)
	case !strings.HasPrefix(hash, "$2"):
		return "", 0, fmt.Errorf("the hash of %q is not one of bcrypt: others are computed too fast to resist a search", name)
	}
	hash = "$2a" + hash[min(len(hash), len("$2y")):] // 2a, 2b and 2y are one algorithm
	cost, err = bcrypt.Cost([]byte(hash))
	switch {
	case err != nil:
		return "", 0, fmt.Errorf("the hash of %q is wrong: %w", name, err)
	case cost > maxCost:
		return "", 0, fmt.Errorf("the hash of %q has cost %d; at most %d is allowed, which takes a second", name, cost, maxCost)
	}
	u.hashes[name] = []byte(hash)
	return name, cost, nil
}

// Len returns how many there are.
func (u *Users) Len() int { return len(u.hashes) }

// Verdict is the state of credentials.
type Verdict uint8

// Values of Verdict.
const (
	Denied  Verdict = iota
	Granted         // they are valid
	Unknown         // Verify has to be asked
)

// Credentials returns the name and the password of a field Authorization (RFC 7617 2).
func Credentials(field string) (name, password string, ok bool) {
	scheme, encoded, _ := strings.Cut(field, " ")
	if !strings.EqualFold(scheme, "basic") {
		return "", "", false
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimLeft(encoded, " "))
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(text), ":")
}

// Check returns what is known of a name and a password without a hash of bcrypt.
func (u *Users) Check(name, password string) Verdict {
	if (*u.known.Load())[u.login(name, password)] {
		return Granted
	}
	return Unknown
}

// login returns the hash by which a login is remembered. The length keeps two names and passwords with one text apart.
func (u *Users) login(name, password string) login {
	b := make([]byte, 0, 256)
	b = append(b, u.secret[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(name)))
	b = append(append(b, name...), password...)
	return sha256.Sum256(b)
}

// Verify computes the hash of a password on another goroutine, and calls done there. It returns ErrBusy, and calls nothing, where
// too many wait. Logins that are alike are computed once.
func (u *Users) Verify(name, password string, done func(ok bool)) error {
	if u.pending.Add(1) > maxPending {
		u.pending.Add(-1)
		return ErrBusy
	}
	id := u.login(name, password)
	u.mu.Lock()
	defer u.mu.Unlock()
	first := u.flights[id] == nil
	u.flights[id] = append(u.flights[id], done)
	if first {
		name, password = strings.Clone(name), strings.Clone(password)
		go u.compute(id, name, password)
	}
	return nil
}

// compute compares a password with the hash of a name, in constant time: bcrypt takes as long for a wrong one.
func (u *Users) compute(id login, name, password string) {
	u.running <- struct{}{}
	hash, there := u.hashes[name]
	if !there {
		hash = u.dummy
	}
	ok := bcrypt.CompareHashAndPassword(hash, []byte(password)) == nil && there
	<-u.running
	u.mu.Lock()
	if ok {
		u.remember(id)
	}
	waiting := u.flights[id]
	delete(u.flights, id)
	u.mu.Unlock()
	u.pending.Add(-int64(len(waiting)))
	for _, done := range waiting {
		done(ok)
	}
}

// remember keeps a login that is valid. The caller holds u.mu.
func (u *Users) remember(id login) {
	old := *u.known.Load()
	if len(old) >= maxRemembered {
		old = nil
	}
	next := maps.Clone(old)
	if next == nil {
		next = map[login]bool{}
	}
	next[id] = true
	u.known.Store(&next)
}

// Same reports whether another file has the same users and hashes: what is remembered of it holds.
func (u *Users) Same(o *Users) bool {
	return maps.EqualFunc(u.hashes, o.hashes, func(a, b []byte) bool { return string(a) == string(b) })
}
