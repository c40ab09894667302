package sign

import (
	"crypto"
	"crypto/ecdsa"
	standard "crypto/ed25519"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rsa"
	"io"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/gpukern/ed25519"
)

// Signer is a private key that signs by a Batch: alone, or together with others by Request. It is safe for concurrent use.
type Signer struct {
	key    crypto.Signer
	faults atomic.Uint64

	mu       sync.Mutex // of what follows: loops share the key
	state    signerState
	batch    Key // nil if the key is unsuited, or cleared
	requests int // that have not ended
}

// signerState is the state of what batches need of a key:
//
//	           Request, Prepare   Retire
//	fresh      prepared           retired
//	prepared   prepared           retired
//	retired    retired            retired
type signerState uint8

const (
	fresh    signerState = iota // nothing is computed
	prepared                    // batch is set, if the key is suited
	retired                     // batch is cleared when the last request has ended
)

// RSASigner is a Signer that decrypts as its key does, for the key exchange of RSA in TLS 1.2. crypto/tls refuses keys of other
// kinds that have Decrypt.
type RSASigner struct{ *Signer }

// Decrypt implements crypto.Decrypter.
func (s RSASigner) Decrypt(random io.Reader, ciphertext []byte, opts crypto.DecrypterOpts) ([]byte, error) {
	return s.key.(*rsa.PrivateKey).Decrypt(random, ciphertext, opts)
}

// Wrap returns a Signer, or RSASigner, for a key that this CPU signs with in batches, and any other key as it is. It is
// cheap: what a batch needs is computed before the first signature. In the FIPS 140-3 mode of Go keys stay what
// they are, as only its own module is validated.
func Wrap(key crypto.PrivateKey) crypto.PrivateKey {
	if fips140.Enabled() {
		return key
	}
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if Supported() {
			return NewRSASigner(k)
		}
	case standard.PrivateKey:
		if ed25519.Supported() {
			return NewSigner(k)
		}
	case *ecdsa.PrivateKey:
		if Supported() && (k.Curve == elliptic.P256() || k.Curve == elliptic.P384()) {
			return NewSigner(k)
		}
	}
	return key
}

// NewSigner returns a Signer for a key, whatever the CPU. Keys that no batch takes sign by themselves.
func NewSigner(key crypto.Signer) *Signer { return &Signer{key: key} }

// NewRSASigner returns an RSASigner for a key, whatever the CPU.
func NewRSASigner(key *rsa.PrivateKey) RSASigner { return RSASigner{NewSigner(key)} }

// Of returns the Signer that a key is, nil if it is none.
func Of(key crypto.PrivateKey) *Signer {
	switch k := key.(type) {
	case *Signer:
		return k
	case RSASigner:
		return k.Signer
	}
	return nil
}

// Key returns the key that was wrapped.
func (s *Signer) Key() crypto.Signer { return s.key }

// Public implements crypto.Signer.
func (s *Signer) Public() crypto.PublicKey { return s.key.Public() }

// Request returns a request for a Batch, nil where the key signs by itself: Sign does. The request keeps the key in memory
// until it has ended: it is to be added to a Batch, or cancelled.
func (s *Signer) Request(random io.Reader, digest []byte, opts crypto.SignerOpts) *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.prepare(); k == nil || !k.takes(opts) {
		return nil
	}
	s.requests++
	return &Request{Key: s.batch, Random: random, Digest: digest, Opts: opts, owner: s}
}

// Prepare computes at once what batches need of the key, which takes up to 1.2 ms. They do it as it proves used.
func (s *Signer) Prepare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.prepare().(interface{ prepare() }); ok {
		k.prepare()
	}
}

// Retire overwrites what batches sign with, as soon as the requests that wait have ended. Handshakes under way end as they
// would have: what is signed afterwards, the wrapped key signs. That key remains, since crypto/rsa and crypto/ecdsa have no
// way to overwrite theirs.
func (s *Signer) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = retired
	s.clearUnused()
}

// ended counts a request that has ended.
func (s *Signer) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests--
	s.clearUnused()
}

// clearUnused overwrites a retired key that no request has. s.mu is held.
func (s *Signer) clearUnused() {
	if s.state != retired || s.requests > 0 || s.batch == nil {
		return
	}
	s.batch.Clear()
	s.batch = nil
}

// prepare returns the key of batches, nil if there is none. s.mu is held.
func (s *Signer) prepare() Key {
	if s.state == retired {
		return nil
	}
	if s.state == fresh {
		s.state = prepared
		switch k := s.key.(type) {
		case *rsa.PrivateKey:
			if own, err := NewRSAKey(k); err == nil {
				s.batch = own
			}
		case *ecdsa.PrivateKey:
			if own, err := NewECDSAKey(k); err == nil {
				s.batch = own
			}
		case standard.PrivateKey:
			if own, err := NewEd25519Key(k); err == nil {
				s.batch = own
			}
		}
	}
	return s.batch
}

// alone holds batches for signatures that nothing waits beside.
var alone = sync.Pool{New: func() any { return new(Batch) }}

// Sign implements crypto.Signer. It makes the signature at once.
func (s *Signer) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	r := s.Request(random, digest, opts)
	if r == nil {
		return s.key.Sign(random, digest, opts)
	}
	b := alone.Get().(*Batch)
	defer alone.Put(b)
	b.Add(r)
	b.Run()
	return s.Result(r)
}

// Result returns the signature of a request that has ended. A fault is counted, and the key's package signs in its place.
func (s *Signer) Result(r *Request) ([]byte, error) {
	if r.Err == ErrFault {
		s.faults.Add(1)
		return s.key.Sign(r.Random, r.Digest, r.Opts)
	}
	return r.Signature, r.Err
}

// Faults returns how many signatures failed their verification.
func (s *Signer) Faults() uint64 { return s.faults.Load() }
