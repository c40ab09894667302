package tls

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// A Stapler keeps the OCSP responses of the certificates in a Store. A response is fetched again at
// half of its life, and sent until it expires: never longer, whatever the responder does. Only
// responses that say "good" are sent. Certificates without a responder are left alone.
type Stapler struct {
	Store *Store
	// Client makes the requests; nil stands for one with a timeout of 10 s that follows no
	// redirections and uses the proxies of the environment.
	Client *http.Client
	// Report gets each failure, with the certificate's ID; nil drops them. The Store keeps the
	// response that it has.
	Report func(id string, err error)
	// Parallel bounds the requests under way; 0 stands for 8.
	Parallel int

	refreshing sync.Mutex // one Refresh at a time
	mu         sync.Mutex
	plans      map[*entry]*staplePlan
}

// staplePlan is when a certificate's response is fetched next.
type staplePlan struct {
	next     time.Time
	failures int
}

// Times of a Stapler.
const (
	staplePoll  = 10 * time.Second // how soon a new certificate in the Store gets its response
	stapleRetry = 30 * time.Second // after the first failure; each further one doubles it
	stapleMost  = time.Hour        // the longest pause after failures
)

var defaultOCSPClient = &http.Client{
	Timeout:       10 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Run fetches responses until ctx ends, and returns its error.
func (s *Stapler) Run(ctx context.Context) error {
	ticker := time.NewTicker(staplePoll)
	defer ticker.Stop()
	for {
		s.Refresh(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Refresh fetches the responses that are due and returns when all have come or failed. Run calls
// it; a program that must staple from its first connection on calls it before it listens.
func (s *Stapler) Refresh(ctx context.Context) {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	parallel := s.Parallel
	if parallel <= 0 {
		parallel = 8
	}
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for e, plan := range s.due(time.Now()) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s.fetch(ctx, e, plan)
		})
	}
	wg.Wait()
}

// due returns the certificates whose responses are to be fetched, and forgets those that are gone.
func (s *Stapler) due(now time.Time) map[*entry]*staplePlan {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Store.mu.Lock()
	defer s.Store.mu.Unlock()
	due, plans := map[*entry]*staplePlan{}, map[*entry]*staplePlan{}
	for _, e := range s.Store.entries {
		if len(e.cert.Leaf.OCSPServer) == 0 {
			continue
		}
		plan := s.plans[e]
		if plan == nil {
			plan = &staplePlan{}
			if st := e.staple.Load(); st != nil { // of the same certificate, loaded again
				plan.next = halfLife(validity{st.thisUpdate, st.until}, now)
			}
		}
		plans[e] = plan
		if !now.Before(plan.next) {
			due[e] = plan
		}
	}
	s.plans = plans
	return due
}

// fetch gets a response. A certificate that is said to be revoked loses its response at once.
func (s *Stapler) fetch(ctx context.Context, e *entry, plan *staplePlan) {
	now := time.Now()
	client := s.Client
	if client == nil {
		client = defaultOCSPClient
	}
	response, v, err := s.ask(ctx, client, e, now)
	if err == nil {
		e.attach(response, v.from, v.until)
		plan.failures, plan.next = 0, halfLife(v, now)
		return
	}
	if errors.Is(err, ErrRevoked) || errors.Is(err, ErrStatusUnknown) {
		e.staple.Store(nil)
	}
	plan.next = now.Add(min(stapleRetry<<min(plan.failures, 16), stapleMost))
	plan.failures++
	if s.Report != nil && ctx.Err() == nil {
		s.Report(e.id, err)
	}
}

func (s *Stapler) ask(ctx context.Context, client *http.Client, e *entry, now time.Time) ([]byte, validity, error) {
	if len(e.cert.Certificate) < 2 {
		return nil, validity{}, ErrNoResponder
	}
	issuer, err := x509.ParseCertificate(e.cert.Certificate[1])
	if err != nil {
		return nil, validity{}, err
	}
	return fetchResponse(ctx, client, e.cert.Leaf, issuer, now)
}

// halfLife returns when a response is fetched again: in the middle of what is left of its life now.
func halfLife(v validity, now time.Time) time.Time {
	return now.Add(v.until.Sub(now) / 2)
}

// Staple makes an OCSP response, in DER, the one that is sent with a certificate of the store. It has to say that the certificate is good
// now. The issuer is the second certificate of its chain.
func (s *Store) Staple(id string, response []byte) error {
	s.mu.Lock()
	e := s.entries[id]
	s.mu.Unlock()
	if e == nil {
		return fmt.Errorf("%s: %w: no such certificate", id, ErrUnusableCertificate)
	}
	if len(e.cert.Certificate) < 2 {
		return fmt.Errorf("%s: %w", id, ErrNoResponder)
	}
	issuer, err := x509.ParseCertificate(e.cert.Certificate[1])
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	v, err := checkResponse(response, e.cert.Leaf, issuer, time.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	e.attach(response, v.from, v.until)
	return nil
}
