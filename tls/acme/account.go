package acme

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mholt/acmez/v3/acme"
)

// accountState is the account of a Manager, once the authority has confirmed it.
type accountState struct {
	mu      sync.Mutex
	account *acme.Account
}

// get returns the account. The authority returns the one that the key has, or makes it (RFC 8555
// 7.3.1): nothing but the key need be stored.
func (s *accountState) get(ctx context.Context, m *Manager) (acme.Account, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.account != nil {
		return *s.account, nil
	}
	key, err := m.accountKey()
	if err != nil {
		return acme.Account{}, err
	}
	a := acme.Account{PrivateKey: key, Contact: m.o.Contact, TermsOfServiceAgreed: true}
	if x := m.o.Account; x != nil {
		if err := a.SetExternalAccountBinding(ctx, m.client.Client, acme.EAB{KeyID: x.KeyID, MACKey: x.MACKey}); err != nil {
			return a, fmt.Errorf("external account: %w", err)
		}
	}
	if a, err = m.client.NewAccount(ctx, a); err != nil {
		return a, err
	}
	if len(m.o.Contact) > 0 && !slices.Equal(a.Contact, m.o.Contact) {
		a.Contact = m.o.Contact
		if a, err = m.client.UpdateAccount(ctx, a); err != nil {
			return a, err
		}
	}
	s.account = &a
	return a, nil
}

// failed forgets the account if the authority does not know it, so that the next attempt asks again.
func (s *accountState) failed(err error) {
	var p acme.Problem
	if errors.As(err, &p) && (p.Type == acme.ProblemTypeAccountDoesNotExist || p.Type == acme.ProblemTypeUnauthorized) {
		s.mu.Lock()
		s.account = nil
		s.mu.Unlock()
	}
}
