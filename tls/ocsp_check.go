package tls

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"sync"
	"time"
)

// OCSPCheck asks the responders of client certificates whether these are revoked, and keeps the answers until
// they end. It checks the client's own certificate; Revocation checks those above it too. crypto/tls does not
// ask clients for stapled responses, so the server must fetch them. The zero value is ready.
type OCSPCheck struct {
	// Client makes the requests; nil follows no redirections and times out after 10 s.
	Client *http.Client
	// Timeout bounds the time that a handshake waits for an answer; 0 is 3 s.
	Timeout time.Duration
	// Strict refuses certificates without an answer. Without it only those are refused that are revoked.
	Strict bool
	// NoWait never waits, for loops that drive an Engine: a certificate that is not known yet counts as one
	// without an answer while the answer is fetched.
	NoWait bool
	// Entries bounds the answers that are kept; 0 is 4096.
	Entries int

	mu      sync.Mutex
	answers map[answerKey]*ocspAnswer
	running int
}

const (
	defaultOCSPWait    = 3 * time.Second
	defaultOCSPEntries = 4096
	maxOCSPRequests    = 64          // under way: with more a certificate has no answer
	revokedFor         = time.Hour   // how long a certificate counts as revoked until the responder is asked again
	failedFor          = time.Minute // the same where no answer came
)

// answerKey is a hash of a certificate and its issuer.
type answerKey [sha256.Size]byte

// ocspAnswer is the cached status of a certificate. Its fields but renewing are set when done is closed.
type ocspAnswer struct {
	done         chan struct{}
	err          error // nil: good
	renew, until time.Time
	renewing     bool
}

// errNoAnswer reports that the answer has not come, or that too much is asked at once.
var errNoAnswer = errors.New("tls: no OCSP answer")

// Check checks chains that crypto/tls has verified. It is nil if the first certificate of one is good, and, unless
// Strict is set, if it is not known to be revoked. An error is a *VerifyError.
func (c *OCSPCheck) Check(chains [][]*x509.Certificate) (err error) {
	for _, chain := range chains {
		if len(chain) < 2 {
			return nil // it is trusted by itself
		}
		if err = c.checkOne(chain[0], chain[1]); err == nil {
			return nil
		}
	}
	return err
}

func (c *OCSPCheck) checkOne(cert, issuer *x509.Certificate) error {
	err := ErrNoResponder
	if len(cert.OCSPServer) > 0 {
		err = c.answer(cert, issuer, time.Now())
	}
	switch {
	case err == nil, errors.Is(err, ErrRevoked):
		return err
	case c.Strict:
		return &VerifyError{Reason: ErrRevocationUnknown, Certificate: cert, Err: err}
	}
	return nil
}

// answer returns what is known, and waits for it if it may. An answer is renewed in the background after half of
// its life.
func (c *OCSPCheck) answer(cert, issuer *x509.Certificate, now time.Time) error {
	key := answerKey(sha256.Sum256(append(cert.Raw[:len(cert.Raw):len(cert.Raw)], issuer.Raw...)))
	c.mu.Lock()
	a := c.answers[key]
	known := a != nil && a.complete()
	switch {
	case a == nil || known && !now.Before(a.until):
		if a = c.ask(key, cert, issuer, now); a == nil {
			c.mu.Unlock()
			return errNoAnswer
		}
	case known && !a.renewing && now.After(a.renew):
		a.renewing = true
		c.ask(key, cert, issuer, now)
	}
	c.mu.Unlock()
	if c.NoWait && !a.complete() {
		return errNoAnswer
	}
	return a.wait(c.wait())
}

func (c *OCSPCheck) wait() time.Duration {
	if c.Timeout <= 0 {
		return defaultOCSPWait
	}
	return c.Timeout
}

func (a *ocspAnswer) complete() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

func (a *ocspAnswer) wait(limit time.Duration) error {
	if a.complete() {
		return a.err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-a.done:
		return a.err
	case <-timer.C:
		return errNoAnswer
	}
}

// ask fetches an answer in the background; c.mu is held. One that is to be renewed stays until the new one is there.
// It returns nil if too much is asked.
func (c *OCSPCheck) ask(key answerKey, cert, issuer *x509.Certificate, now time.Time) *ocspAnswer {
	if c.running >= maxOCSPRequests || !c.makeRoom(key, now) {
		return nil
	}
	c.running++
	a := &ocspAnswer{done: make(chan struct{})}
	if old := c.answers[key]; old == nil || !now.Before(old.until) {
		c.answers[key] = a
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), c.wait())
		defer cancel()
		a.fetch(ctx, c.Client, cert, issuer)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running--
		old := c.answers[key]
		if said := a.err == nil || errors.Is(a.err, ErrRevoked) || errors.Is(a.err, ErrStatusUnknown); said || old == nil || old == a {
			c.answers[key] = a
		} else { // the old answer holds until it ends
			old.renewing, old.renew = false, time.Now().Add(failedFor)
		}
		close(a.done)
	}()
	return a
}

// fetch sets the answer.
func (a *ocspAnswer) fetch(ctx context.Context, client *http.Client, cert, issuer *x509.Certificate) {
	if client == nil {
		client = defaultOCSPClient
	}
	now := time.Now()
	_, v, err := fetchResponse(ctx, client, cert, issuer, now)
	var revoked *VerifyError
	switch {
	case err == nil:
		a.until, a.renew = v.until, halfLife(v, now)
	case errors.As(err, &revoked):
		a.err, a.until = revoked, now.Add(revokedFor)
		a.renew = a.until
	default:
		a.err, a.until = err, now.Add(failedFor)
		a.renew = a.until
	}
}

// makeRoom makes room for one more answer. Those that have ended go first, then any that has come.
func (c *OCSPCheck) makeRoom(key answerKey, now time.Time) bool {
	most := c.Entries
	if most <= 0 {
		most = defaultOCSPEntries
	}
	if c.answers == nil {
		c.answers = map[answerKey]*ocspAnswer{}
	}
	if c.answers[key] != nil || len(c.answers) < most {
		return true
	}
	var victim *answerKey
	looked := 0
	for k, a := range c.answers {
		if !a.complete() {
			continue
		}
		victim = &k
		if looked++; looked == 16 || !now.Before(a.until) {
			break
		}
	}
	if victim == nil {
		return false
	}
	delete(c.answers, *victim)
	return true
}

// verify is crypto/tls's VerifyConnection, also of resumed sessions.
func (c *OCSPCheck) verify(cs tls.ConnectionState) error {
	if len(cs.VerifiedChains) == 0 {
		return nil // the peer sent no certificate, and need not
	}
	return c.Check(cs.VerifiedChains)
}
