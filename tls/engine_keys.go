package tls

import (
	"bytes"
	"crypto/cipher"
	"crypto/fips140"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/hex"
	"hash"
	"io"

	"github.com/millrace/millrace/gpukern/aead"
)

// keyLog obtains the traffic keys of a handshake of crypto/tls, so that the engine can protect records itself.
//
// crypto/tls exports no keys, but writes its secrets to Config.KeyLogWriter, in the format of NSS:
//
//	CLIENT_TRAFFIC_SECRET_0 <client random> <secret>     TLS 1.3, one line for each end
//	CLIENT_RANDOM           <client random> <master>     TLS 1.2
//
// What it does not say is the number of records that crypto/tls has already sent under the new keys (session tickets). Using
// a sequence number twice would reveal the key (RFC 8446 5.3), so that is not assumed: the engine tries
// to open what was sent with the new keys, and counts.
type keyLog struct {
	config *tls.Config // the clone that the connection has
	role   role

	hands   [2][]byte // TLS 1.3, of the handshake, by role of the writer
	traffic [2][]byte // TLS 1.3, by role of the writer
	random  []byte    // of the client
	master  []byte    // TLS 1.2
	flight  []byte    // records sent since the keys are known
	heard   []byte    // what a server has received, up to maxHeard
	hello   []byte    // the first bytes that the server sent
}

// helloPrefix is the number of bytes of the server's first record that it takes to read its random: the record header,
// the message header, the version and 32 bytes (RFC 5246 7.4.1.3).
const helloPrefix = recordHeader + 4 + 2 + 32

// config prepares a clone of the user's Config that logs keys to the engine, also if GetConfigForClient
// replaces it.
func (h *handshake) config(config *tls.Config, r role) {
	k := &h.keys
	k.role = r
	if r == server && !config.SessionTicketsDisabled {
		// Without keys of the user's, a Config makes them on first use, and again once a day. Clones share
		// those that exist: this call, which decrypts nothing, makes them.
		_, _ = config.DecryptTicket(nil, tls.ConnectionState{})
	}
	k.config = config.Clone()
	h.signs(k.config)
	if h.transport.e.options.StandardRecords || fips140.Enabled() {
		return // cipher.NewGCM with nonces of the caller's is not approved
	}
	k.config.KeyLogWriter = k.tee(config.KeyLogWriter)
	if get := config.GetConfigForClient; get != nil {
		k.config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			var c *tls.Config
			var err error
			if a := h.asked; a != nil {
				c, err = a.config, a.err
			} else {
				c, err = get(hello)
			}
			if c != nil && err == nil {
				c = c.Clone()
				c.KeyLogWriter = k.tee(c.KeyLogWriter)
				h.signs(c)
			}
			return c, err
		}
	}
}

// keyLogTee passes the lines on to the writer that the user configured, if any.
type keyLogTee struct {
	k    *keyLog
	user io.Writer
}

func (k *keyLog) tee(user io.Writer) io.Writer { return keyLogTee{k, user} }

func (t keyLogTee) Write(line []byte) (int, error) {
	t.k.line(line)
	if t.user == nil {
		return len(line), nil
	}
	return t.user.Write(line)
}

// line takes one line of the key log.
func (k *keyLog) line(line []byte) {
	label, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
	random, secret, _ := bytes.Cut(rest, []byte(" "))
	switch string(label) {
	case "CLIENT_HANDSHAKE_TRAFFIC_SECRET":
		k.hands[client] = unhex(secret)
	case "SERVER_HANDSHAKE_TRAFFIC_SECRET":
		k.hands[server] = unhex(secret)
	case "CLIENT_TRAFFIC_SECRET_0":
		k.traffic[client] = unhex(secret)
	case "SERVER_TRAFFIC_SECRET_0":
		k.traffic[server] = unhex(secret)
	case "CLIENT_RANDOM":
		k.random, k.master = unhex(random), unhex(secret)
	}
}

// unhex returns nil for what is no hexadecimal number: then there are no keys.
func unhex(text []byte) []byte {
	b, err := hex.AppendDecode(make([]byte, 0, len(text)/2), text)
	if err != nil {
		return nil
	}
	return b
}

// sent takes what the engine's end sends in the handshake.
func (k *keyLog) sent(p []byte) {
	if k.role == server {
		k.helloBytes(p)
	}
	if k.traffic[k.role] != nil || k.master != nil {
		k.flight = append(k.flight, p...)
	}
}

// received takes what the peer sends.
func (k *keyLog) received(p []byte) {
	if k.role == client {
		k.helloBytes(p)
		return
	}
	k.heard = append(k.heard, p[:min(len(p), maxHeard-len(k.heard))]...)
}

func (k *keyLog) helloBytes(p []byte) {
	if missing := helloPrefix - len(k.hello); missing > 0 {
		k.hello = append(k.hello, p[:min(missing, len(p))]...)
	}
}

// suite is a cipher suite whose records the engine protects itself.
type suite struct {
	hash     func() hash.Hash
	key      int // bytes
	chacha   bool
	explicit bool // the nonce of TLS 1.2's AES-GCM is 4 bytes of key material and 8 of the record (RFC 5288 3)
}

var (
	aes128   = suite{hash: sha256.New, key: 16}
	aes256   = suite{hash: sha512.New384, key: 32}
	chacha   = suite{hash: sha256.New, key: 32, chacha: true}
	aes128v2 = suite{hash: sha256.New, key: 16, explicit: true}
	aes256v2 = suite{hash: sha512.New384, key: 32, explicit: true}
)

// suiteOf returns the suite of a TLS 1.3 or 1.2 connection, nil if its records remain crypto/tls's.
func suiteOf(id uint16) *suite {
	switch id {
	case tls.TLS_AES_128_GCM_SHA256:
		return &aes128
	case tls.TLS_AES_256_GCM_SHA384:
		return &aes256
	case tls.TLS_CHACHA20_POLY1305_SHA256,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
		return &chacha
	case tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256:
		return &aes128v2
	case tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384:
		return &aes256v2
	}
	return nil
}

// aead returns the cipher of a key; its length is the suite's, so there is no error.
func (s *suite) aead(key []byte) cipher.AEAD {
	algorithm := aead.AES128GCM
	switch {
	case s.chacha:
		algorithm = aead.ChaCha20Poly1305
	case s.key == 32:
		algorithm = aead.AES256GCM
	}
	a, err := aead.New(algorithm, key)
	if err != nil {
		panic("tls: " + err.Error())
	}
	return a
}

// takeOver returns the engine's own record layer for a complete handshake, nil if crypto/tls's is to be kept.
func (h *handshake) takeOver(cs *tls.ConnectionState) *records {
	k, s := &h.keys, suiteOf(cs.CipherSuite)
	if s == nil {
		return nil
	}
	r := &records{e: h.transport.e, suite: s}
	switch {
	case cs.Version == tls.VersionTLS13 && k.traffic[client] != nil && k.traffic[server] != nil:
		r.write.init(s, k.traffic[k.role])
		r.read.init(s, k.traffic[1-k.role])
	case cs.Version == tls.VersionTLS12 && k.master != nil && k.helloWhole():
		r.deriveTLS12(k)
	default:
		return nil
	}
	r.write.countSent(k.flight)
	if cs.Version == tls.VersionTLS12 {
		// Each end has sent its Finished under these keys (RFC 5246 7.4.9). That of this end opened, so the keys
		// are right. The peer's may have come in several records.
		if r.write.seq == 0 {
			return nil
		}
		r.read.seq = h.transport.cut.protected
	}
	r.standard = newTicketReader(h, r)
	if !k.config.DynamicRecordSizingDisabled {
		r.young = growing
	}
	return r
}

// helloWhole reports whether the server's first record begins with a whole random.
func (k *keyLog) helloWhole() bool {
	const serverHello = 2
	h := k.hello
	return len(h) == helloPrefix && h[0] == typeHandshake && h[recordHeader] == serverHello &&
		int(h[3])<<8|int(h[4]) >= helloPrefix-recordHeader
}

// init makes the keys of a TLS 1.3 traffic secret (RFC 8446 7.3).
func (p *protection) init(s *suite, secret []byte) {
	p.secret = secret
	p.derive(s, hmac.New(s.hash, secret))
}

// derive is init by the HMAC of a secret, which others may use, too.
func (p *protection) derive(s *suite, mac hash.Hash) {
	p.version = tls.VersionTLS13
	p.aead = s.aead(expandLabel(mac, "key", s.key))
	copy(p.iv[:], expandLabel(mac, "iv", len(p.iv)))
	p.seq = 0
}

// update makes the keys of the next secret (RFC 8446 7.2).
func (p *protection) update(s *suite) {
	p.init(s, expandLabel(hmac.New(s.hash, p.secret), "traffic upd", len(p.secret)))
}

// expandLabel is HKDF-Expand-Label with an empty context (RFC 8446 7.1), for keys of at most one hash: then
// HKDF-Expand is one HMAC of the secret (RFC 5869 2.3).
func expandLabel(mac hash.Hash, label string, size int) []byte {
	const prefix = "tls13 "
	info := make([]byte, 0, 32)
	info = append(info, byte(size>>8), byte(size), byte(len(prefix)+len(label)))
	info = append(append(info, prefix...), label...)
	info = append(info, 0, 1) // no context; the first block
	mac.Reset()
	mac.Write(info)
	return mac.Sum(nil)[:size]
}

// deriveTLS12 makes both keys from the master secret (RFC 5246 6.3): the key block is client key, server key,
// client IV, server IV; AEAD suites have no MAC keys.
func (r *records) deriveTLS12(k *keyLog) {
	s := r.suite
	iv := 12 // RFC 7905 2
	if s.explicit {
		iv = 4
	}
	seed := append([]byte("key expansion"), k.hello[helloPrefix-32:]...)
	seed = append(seed, k.random...)
	block := prf12(s.hash, k.master, seed, 2*s.key+2*iv)
	ends := [2]*protection{&r.write, &r.read}
	if k.role == server {
		ends = [2]*protection{&r.read, &r.write}
	}
	for i, p := range ends {
		p.version = tls.VersionTLS12
		p.explicit = s.explicit
		p.aead = s.aead(block[i*s.key : (i+1)*s.key])
		copy(p.iv[:], block[2*s.key+i*iv:2*s.key+(i+1)*iv])
	}
}

// prf12 is P_hash (RFC 5246 5).
func prf12(h func() hash.Hash, secret, seed []byte, size int) []byte {
	mac := hmac.New(h, secret)
	sum := func(parts ...[]byte) []byte {
		mac.Reset()
		for _, p := range parts {
			mac.Write(p)
		}
		return mac.Sum(nil)
	}
	var out []byte
	for a := sum(seed); len(out) < size; a = sum(a) {
		out = append(out, sum(a, seed)...)
	}
	return out[:size]
}
