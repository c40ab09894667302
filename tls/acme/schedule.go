package acme

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"time"

	"github.com/mholt/acmez/v3/acme"
)

// managed is a certificate for a list of names. mu guards what Status reads; busy is held by the one
// goroutine that attends to it.
type managed struct {
	names []string
	busy  sync.Mutex
	// permits returns an error where the name is not to be renewed; nil permits it.
	permits func(ctx context.Context) error

	mu    sync.Mutex
	to    []destination
	cert  *x509.Certificate // nil until there is one
	pair  tls.Certificate   // with the key, the same
	state state
}

// state is kept over a restart. It is stored as JSON.
type state struct {
	Names     []string  `json:"names"`
	Failures  int       `json:"failures,omitempty"`
	NotBefore time.Time `json:"not_before,omitzero"` // of the next attempt after a failure
	LastError string    `json:"last_error,omitempty"`
	ARI       *ari      `json:"ari,omitempty"`

	// OmitReplaces: the next order does not name the certificate that it replaces.
	OmitReplaces bool `json:"omit_replaces,omitempty"`
}

// ari is renewal information of the authority (RFC 9773 4.2) for the certificate with the serial number.
type ari struct {
	Serial   string    `json:"serial"`
	Start    time.Time `json:"start"` // of the window
	End      time.Time `json:"end"`
	Selected time.Time `json:"selected"` // at random in the window, once
	AskAgain time.Time `json:"ask_again"`
}

const (
	firstRetry = time.Minute // after a failure; each further one doubles it
	mostRetry  = 24 * time.Hour
	leastLife  = time.Hour // before a certificate is renewed, whatever the authority says; less for short-lived ones

	// How often renewal information is asked for: within these bounds, the authority decides (RFC
	// 9773 4.3.1).
	leastARI   = time.Minute
	mostARI    = 24 * time.Hour
	defaultARI = 6 * time.Hour
)

func (c *managed) leaf() *x509.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cert
}

// due returns when a certificate is to be obtained: at once if there is none, in the window of the
// authority, or after two thirds of the certificate's life. After failures it is later.
func (c *managed) due() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	var at time.Time
	if c.cert != nil {
		at = c.cert.NotBefore.Add(c.cert.NotAfter.Sub(c.cert.NotBefore) / 3 * 2)
		if a := c.ari(); a != nil {
			at = a.Selected
		}
	}
	if c.state.NotBefore.After(at) {
		at = c.state.NotBefore
	}
	return at
}

// ari returns the renewal information of the present certificate; c.mu is held.
func (c *managed) ari() *ari {
	if c.cert == nil || c.state.ARI == nil || c.state.ARI.Serial != c.cert.SerialNumber.Text(16) || c.state.ARI.Selected.IsZero() {
		return nil
	}
	return c.state.ARI
}

// namesReplaced reports whether the next order names the certificate that it replaces (RFC 9773 5).
func (c *managed) namesReplaced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ari() != nil && !c.state.OmitReplaces
}

// nextARI returns when renewal information is to be asked for.
func (c *managed) nextARI() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.state.ARI; a != nil && c.cert != nil && a.Serial == c.cert.SerialNumber.Text(16) {
		return a.AskAgain
	}
	return time.Time{}
}

// nextLook returns when attend has something to do.
func (c *managed) nextLook() time.Time {
	at := c.due()
	if ask := c.nextARI(); c.leaf() != nil && ask.Before(at) {
		return ask
	}
	return at
}

// ended notes the end of an attempt.
func (c *managed) ended(err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		// An authority whose window has always begun would be asked for certificates without end.
		pause := leastLife
		if c.cert != nil {
			pause = min(pause, c.cert.NotAfter.Sub(c.cert.NotBefore)/3)
		}
		c.state.Failures, c.state.NotBefore, c.state.LastError, c.state.OmitReplaces = 0, now.Add(pause), "", false
		return
	}
	// An authority may reject an order because of the certificate that it names: it does not know the
	// certificate, or knows it as another account's (RFC 9773 5). Naming it in every order would let it
	// expire; naming it in none would lose the exemption from rate limits that ARI brings. So after a
	// rejection the orders alternate.
	var problem acme.Problem
	c.state.OmitReplaces = errors.As(err, &problem) && !c.state.OmitReplaces
	c.state.NotBefore = now.Add(min(firstRetry<<min(c.state.Failures, 12), mostRetry))
	c.state.Failures++
	c.state.LastError = err.Error()
}

func (c *managed) status() Status {
	next := c.due()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Names: c.names, Next: next, FromARI: c.ari() != nil, Failures: c.state.Failures, LastErr: c.state.LastError}
	if c.cert != nil {
		s.NotAfter = c.cert.NotAfter
	}
	return s
}

// askARI asks the authority when to renew. If it does not say, what it said before holds, or two
// thirds of the life; it is asked again later.
func (m *Manager) askARI(ctx context.Context, c *managed, leaf *x509.Certificate, now time.Time) {
	info, err := m.client.GetRenewalInfo(ctx, leaf)
	if ctx.Err() != nil {
		return
	}
	c.noteARI(info, err, leaf, now)
	_ = m.saveState(c) // asked for again after a restart
}

// noteARI keeps renewal information. The time in the window is drawn once: drawing it anew at each
// answer would move it.
func (c *managed) noteARI(info acme.RenewalInfo, err error, leaf *x509.Certificate, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	serial := leaf.SerialNumber.Text(16)
	a := ari{Serial: serial, AskAgain: now.Add(defaultARI)}
	if old := c.state.ARI; old != nil && old.Serial == serial {
		a.Start, a.End, a.Selected = old.Start, old.End, old.Selected
	}
	switch {
	case errors.Is(err, acme.ErrUnsupported):
		a.AskAgain = now.Add(mostARI)
	case err != nil:
		a.AskAgain = now.Add(time.Hour)
	case info.HasWindow() && info.SuggestedWindow.Start.Before(info.SuggestedWindow.End):
		if !a.Start.Equal(info.SuggestedWindow.Start) || !a.End.Equal(info.SuggestedWindow.End) {
			a.Start, a.End, a.Selected = info.SuggestedWindow.Start, info.SuggestedWindow.End, info.SelectedTime
		}
		if info.RetryAfter != nil {
			a.AskAgain = now.Add(min(max(info.RetryAfter.Sub(now), leastARI), mostARI))
		}
	}
	c.state.ARI = &a
}
