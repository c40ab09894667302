package sign

import (
	"crypto"
	"crypto/rsa"
	"io"
	"sync"
	"sync/atomic"
)

// Signer is a private key of RSA that signs by a Batch: alone, or together with others by Request. It decrypts as the
// key does. It is safe for concurrent use.
type Signer struct {
	key    *rsa.PrivateKey
	once   sync.Once
	batch  *RSAKey // nil if the key is unsuited
	faults atomic.Uint64
}

// Wrap returns a Signer for a key of RSA that this CPU signs with in batches, and any other key as it is. It is cheap: what
// a batch needs is computed before the first signature.
func Wrap(key crypto.PrivateKey) crypto.PrivateKey {
	if k, ok := key.(*rsa.PrivateKey); ok && Supported() {
		return NewSigner(k)
	}
	return key
}

// NewSigner returns a Signer for a key, whatever the CPU.
func NewSigner(key *rsa.PrivateKey) *Signer { return &Signer{key: key} }

// Key returns the key that was wrapped.
func (s *Signer) Key() *rsa.PrivateKey { return s.key }

// Public implements crypto.Signer.
func (s *Signer) Public() crypto.PublicKey { return s.key.Public() }

// Decrypt implements crypto.Decrypter, for the key exchange of RSA in TLS 1.2.
func (s *Signer) Decrypt(random io.Reader, ciphertext []byte, opts crypto.DecrypterOpts) ([]byte, error) {
	return s.key.Decrypt(random, ciphertext, opts)
}

// Request returns a request for a Batch, nil where crypto/rsa signs: Sign does.
func (s *Signer) Request(random io.Reader, digest []byte, opts crypto.SignerOpts) *Request {
	s.once.Do(func() { s.batch, _ = NewRSAKey(s.key) })
	if s.batch == nil || !Encodable(opts) {
		return nil
	}
	return &Request{Key: s.batch, Random: random, Digest: digest, Opts: opts}
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

// Result returns the signature of a request that has ended. A fault is counted, and crypto/rsa signs in its place.
func (s *Signer) Result(r *Request) ([]byte, error) {
	if r.Err == ErrFault {
		s.faults.Add(1)
		return s.key.Sign(r.Random, r.Digest, r.Opts)
	}
	return r.Signature, r.Err
}

// Faults returns how many signatures failed their verification.
func (s *Signer) Faults() uint64 { return s.faults.Load() }
