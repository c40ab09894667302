package handshake13

import (
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"sync"
)

// maxHash is the size of the largest hash of a cipher suite, SHA-384.
const maxHash = sha512.Size384

// secret is a secret of the key schedule. Those of SHA-256 have 32 bytes.
type secret [maxHash]byte

// schedule is the key schedule (RFC 8446 7.1). Its memory is used again, so that a handshake allocates none: crypto/hkdf makes
// two hashes for each secret, of which a handshake has twenty.
type schedule struct {
	transcript hash.Hash // of the messages so far
	mac        hash.Hash // of HMAC
	size       int
	block      int
	pad        [sha512.BlockSize]byte
	info       [2 + 1 + 255 + 1 + maxHash + 1]byte // HkdfLabel and the number of the block
	sum        [maxHash]byte
	digest     secret // of the transcript
}

// Schedules by the hash of a cipher suite.
var (
	sha256Schedules = sync.Pool{New: func() any { return newSchedule(sha256.New) }}
	sha384Schedules = sync.Pool{New: func() any { return newSchedule(sha512.New384) }}
)

func newSchedule(h func() hash.Hash) *schedule {
	s := &schedule{transcript: h(), mac: h()}
	s.size, s.block = s.mac.Size(), s.mac.BlockSize()
	return s
}

// scheduleOf returns a schedule whose transcript is empty.
func scheduleOf(of *suite) *schedule {
	s := of.schedules.Get().(*schedule)
	s.transcript.Reset()
	return s
}

// release overwrites secrets and gives the memory back.
func (s *schedule) release(of *suite) {
	clear(s.pad[:])
	clear(s.info[:])
	clear(s.sum[:])
	clear(s.digest[:])
	s.mac.Reset()
	s.transcript.Reset()
	of.schedules.Put(s)
}

// hmac sets to to HMAC (RFC 2104) of a message, as far as to goes. The key is no longer than a block. to may be the key.
func (s *schedule) hmac(to, key, message []byte) {
	inner := s.padded(key, 0x36)
	s.mac.Reset()
	s.mac.Write(inner)
	s.mac.Write(message)
	digest := s.mac.Sum(s.sum[:0])
	outer := s.padded(key, 0x5c)
	s.mac.Reset()
	s.mac.Write(outer)
	s.mac.Write(digest)
	copy(to, s.mac.Sum(s.sum[:0]))
}

func (s *schedule) padded(key []byte, with byte) []byte {
	pad := s.pad[:s.block]
	n := copy(pad, key)
	clear(pad[n:])
	for i := range pad {
		pad[i] ^= with
	}
	return pad
}

// extract is HKDF-Extract (RFC 5869 2.2).
func (s *schedule) extract(to *secret, salt, input []byte) { s.hmac(to[:s.size], salt, input) }

// expand is HKDF-Expand-Label for one hash at most: one HMAC (RFC 5869 2.3).
//
//	HkdfLabel: length(2) label<7..255>="tls13 "+label context<0..255>, then the number 1 of the block
func (s *schedule) expand(to, key []byte, label string, context []byte) {
	const prefix = "tls13 "
	info := append(s.info[:0], 0, byte(len(to)), byte(len(prefix)+len(label)))
	info = append(append(info, prefix...), label...)
	info = append(info, byte(len(context)))
	info = append(append(info, context...), 1)
	s.hmac(to, key, info)
}

// derive is Derive-Secret of a transcript's hash.
func (s *schedule) derive(to, from *secret, label string, hash []byte) {
	s.expand(to[:s.size], from[:s.size], label, hash)
}

// hash returns the hash of the messages so far. It is valid until the next one.
func (s *schedule) hash() []byte { return s.transcript.Sum(s.digest[:0]) }

// next sets to to the secret of the next stage: extracted from input by what is derived from the stage before.
func (s *schedule) next(to, from *secret, of *suite, input []byte) {
	var salt secret
	s.derive(&salt, from, "derived", of.empty[:s.size])
	s.extract(to, salt[:s.size], input)
	clear(salt[:])
}

// finished sets to to verify_data for a transcript's hash (RFC 8446 4.4.4).
func (s *schedule) finished(to []byte, base *secret, hash []byte) {
	var key secret
	s.expand(key[:s.size], base[:s.size], "finished", nil)
	s.hmac(to, key[:s.size], hash)
	clear(key[:])
}

// suite is a cipher suite of TLS 1.3.
type suite struct {
	schedules *sync.Pool
	key       int    // bytes of a traffic key
	size      int    // of its hash
	empty     secret // hash of no messages
	early     secret // early secret without a session
}

func newSuite(p *sync.Pool, key int) *suite {
	of := &suite{schedules: p, key: key}
	s := scheduleOf(of)
	of.size = s.size
	copy(of.empty[:], s.hash())
	s.extract(&of.early, make([]byte, s.size), make([]byte, s.size)) // no session counts as zeros
	return of
}

const ivSize = 12 // bytes (RFC 8446 5.3)

var suites = map[uint16]*suite{
	0x1301: newSuite(&sha256Schedules, 16), // TLS_AES_128_GCM_SHA256
	0x1302: newSuite(&sha384Schedules, 32), // TLS_AES_256_GCM_SHA384
	0x1303: newSuite(&sha256Schedules, 32), // TLS_CHACHA20_POLY1305_SHA256
}

// Keys are a secret of traffic and what protects records with it (RFC 8446 7.3).
type Keys struct {
	secret secret
	key    [32]byte
	iv     [ivSize]byte
	of     *suite
}

// Secret returns the secret. It is valid until the server is released.
func (k *Keys) Secret() []byte { return k.secret[:k.of.size] }

// Key returns the key of the cipher.
func (k *Keys) Key() []byte { return k.key[:k.of.key] }

// IV returns the initialization vector.
func (k *Keys) IV() [ivSize]byte { return k.iv }

// traffic derives a secret of traffic and its keys.
func (s *schedule) traffic(k *Keys, of *suite, from *secret, label string, hash []byte) {
	k.of = of
	s.derive(&k.secret, from, label, hash)
	s.expand(k.key[:of.key], k.secret[:s.size], "key", nil)
	s.expand(k.iv[:], k.secret[:s.size], "iv", nil)
}
