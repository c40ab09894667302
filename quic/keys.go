package quic

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"

	quicgo "github.com/quic-go/quic-go"
)

// minSecret is the least length of TransportConfig.Secret, in bytes.
const minSecret = 16

// keyLabels separate the keys that are derived from one secret.
const (
	resetLabel  = "millrace quic stateless reset"
	tokenLabel  = "millrace quic address validation token"
	ticketLabel = "millrace quic session ticket"
)

// deriveKey expands a secret to a key for one purpose (RFC 5869).
func deriveKey(secret []byte, label string) (key [32]byte, err error) {
	if len(secret) < minSecret {
		return key, fmt.Errorf("%w: a secret has at least 16 bytes", ErrConfig)
	}
	b, err := hkdf.Key(sha256.New, secret, nil, label, len(key))
	copy(key[:], b)
	return key, err
}

// SessionTicketKey derives a key for tls.Config.SetSessionTicketKeys from a secret that instances
// share, so that each can resume the sessions of the others. Early data still only succeeds at the
// instance that issued the ticket, see StrikeRegister.
func SessionTicketKey(secret []byte) ([32]byte, error) { return deriveKey(secret, ticketLabel) }

// setKeys derives the keys of e from a secret.
func setKeys(e *quicgo.Transport, secret []byte) error {
	reset, err := deriveKey(secret, resetLabel)
	if err != nil {
		return err
	}
	token, err := deriveKey(secret, tokenLabel)
	if err != nil {
		return err
	}
	e.StatelessResetKey = (*quicgo.StatelessResetKey)(&reset)
	e.TokenGeneratorKey = (*quicgo.TokenGeneratorKey)(&token)
	return nil
}
