package tls

import (
	"crypto"
	"crypto/tls"
	"io"
	"slices"

	"github.com/millrace/millrace/gpukern/sign"
	"github.com/millrace/millrace/gpukern/x25519"
)

// Signatures makes the key exchanges and signatures of a loop's handshakes in batches. A server's handshake of the engine's own
// suspends with its key exchange, and every handshake with a signature by a key that batches take (a sign.Signer: a Store wraps
// its keys), with AwaitingSignature, until the loop calls Run. It is for the engines of one loop, and not safe for concurrent use
// but by its counts. The zero value is ready.
type Signatures struct {
	exchanges x25519.Batch
	batch     sign.Batch
}

// Waiting returns how many handshakes wait.
func (s *Signatures) Waiting() int { return s.exchanges.Waiting() + s.batch.Waiting() }

// Run computes the key exchanges and then makes the signatures that handshakes wait for, and calls EngineOptions.Signed of each.
func (s *Signatures) Run() {
	s.exchanges.Run() // most of them add a signature
	s.batch.Run()
}

// Exchanges returns the count of key exchanges since the start. Any goroutine may call it.
func (s *Signatures) Exchanges() uint64 { return s.exchanges.Computed() }

// Stats returns the counts of signatures since the start. Any goroutine may call it.
func (s *Signatures) Stats() sign.Stats { return s.batch.Stats() }

// signs has the certificates of a handshake's Config sign in the batch of the loop, if the engine has one.
func (h *handshake) signs(c *tls.Config) {
	if h.transport.e.options.Signatures == nil {
		return
	}
	if get := c.GetCertificate; get != nil {
		c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			cert, err := get(hello)
			return h.signsWith(cert), err
		}
	}
	if get := c.GetClientCertificate; get != nil {
		c.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := get(request)
			return h.signsWith(cert), err
		}
	}
	for i := range c.Certificates {
		if own := h.signsWith(&c.Certificates[i]); own != &c.Certificates[i] {
			c.Certificates = slices.Clone(c.Certificates) // it is the user's
			c.Certificates[i] = *own
		}
	}
}

// signsWith returns a certificate with a key that waits for the batch, or the same one if batches do not take its key.
func (h *handshake) signsWith(cert *tls.Certificate) *tls.Certificate {
	if cert == nil {
		return nil
	}
	key := sign.Of(cert.PrivateKey)
	if key == nil {
		return cert
	}
	own := *cert
	own.PrivateKey = waitingSigner{key, h}
	if d, ok := cert.PrivateKey.(crypto.Decrypter); ok {
		own.PrivateKey = waitingDecrypter{waitingSigner{key, h}, d}
	}
	return &own
}

// waitingSigner is the key of one handshake. It does not embed the key's methods: crypto/tls would find more than Sign.
type waitingSigner struct {
	key *sign.Signer
	h   *handshake
}

// Public implements crypto.Signer. crypto/tls compares its type with those it knows.
func (s waitingSigner) Public() crypto.PublicKey { return s.key.Public() }

// waitingDecrypter is a waitingSigner of RSA. crypto/tls refuses other keys that decrypt.
type waitingDecrypter struct {
	waitingSigner
	decrypter crypto.Decrypter
}

// Decrypt implements crypto.Decrypter.
func (s waitingDecrypter) Decrypt(random io.Reader, ciphertext []byte, opts crypto.DecrypterOpts) ([]byte, error) {
	return s.decrypter.Decrypt(random, ciphertext, opts)
}

// Sign implements crypto.Signer. It suspends the handshake that calls it until the loop has run the batch.
func (s waitingSigner) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	var r *sign.Request
	if s.h.wait != nil {
		r = s.key.Request(random, digest, opts)
	}
	if r == nil {
		return s.key.Sign(random, digest, opts)
	}
	options := &s.h.transport.e.options
	r.Done = options.Signed
	options.Signatures.batch.Add(r)
	s.h.signing = r
	defer func() { s.h.signing = nil }()
	for !r.Ended() {
		if !s.h.wait() {
			r.Cancel()
			return nil, errAborted
		}
	}
	return s.key.Result(r)
}

// awaitsSignature reports whether the handshake is suspended until the batch has run.
func (h *handshake) awaitsSignature() bool { return h.signing != nil && !h.signing.Ended() }

// signed reports whether the handshake can go on without input: its signature has been made.
func (h *handshake) signed() bool { return h.signing != nil && h.signing.Ended() }
