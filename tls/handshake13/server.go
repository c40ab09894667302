package handshake13

import (
	"crypto"
	"crypto/hmac"
	"crypto/mlkem"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"sync"

	"github.com/millrace/millrace/gpukern/x25519"
)

// Server is the server's end of one handshake. New returns one and Release takes it back. It is not safe for concurrent use.
type Server struct {
	Hello    Hello
	Exchange x25519.Exchange // to be computed in AwaitingExchange; Done is the caller's

	state    State
	of       *suite
	schedule *schedule

	// What is agreed on.
	suiteID  uint16
	group    tls.CurveID
	protocol string
	resumed  int // the number of the session, fullHandshake for none
	cert     *tls.Certificate
	scheme   *scheme

	random     [32]byte
	message    []byte // ClientHello: of the caller
	ciphertext []byte // of ML-KEM
	shared     [2 * x25519.Size]byte
	sharedSize int
	early      secret
	handshake  secret
	toSign     [signedPrefix + maxHash]byte
	digest     [sha512.Size]byte

	out      []byte // ServerHello, then the messages that are encrypted
	helloEnd int

	handshakeRead, handshakeWrite, read, write Keys
	exporter, ticket                           secret
	verify                                     secret // of the client's Finished
	client                                     [messageHeader + maxHash]byte
}

const fullHandshake = -1

var servers = sync.Pool{New: func() any { return new(Server) }}

// New returns a server that awaits its hello.
func New() *Server { return servers.Get().(*Server) }

// maxKept is the most memory for messages that is used again, bytes.
const maxKept = 32 << 10

// Release overwrites all secrets, and withdraws the exchange if that waits. The server must not be used after it.
func (s *Server) Release() {
	if s.schedule != nil {
		s.schedule.release(s.of)
		s.schedule = nil
	}
	if s.Exchange.Cancel() { // its batch still has it in a list: the memory is not for other handshakes
		clear(s.shared[:])
		clear(s.early[:])
		return
	}
	out := s.out[:0]
	if cap(out) > maxKept {
		out = nil
	}
	*s = Server{out: out}
	servers.Put(s)
}

// State returns the state.
func (s *Server) State() State { return s.state }

// refuse ends the handshake here.
func (s *Server) refuse(r Reason) Reason {
	s.change(refused)
	return r
}

// Read takes a ClientHello with its header of four bytes, which it borrows until Complete.
func (s *Server) Read(message []byte) Reason {
	if r := s.Hello.parse(message); r != Accepted {
		return s.refuse(r)
	}
	s.message = message
	s.change(helloRead)
	return Accepted
}

// Choose makes the choices.
func (s *Server) Choose(o *Options) Reason {
	h := &s.Hello
	if len(h.Signatures) == 0 {
		return s.refuse(NoScheme) // a full handshake needs them (RFC 8446 4.2.3)
	}
	if s.suiteID = chooseSuite(h.Suites); s.suiteID == 0 {
		return s.refuse(NoSuite)
	}
	var key []byte
	s.group, key = chooseGroup(o.Groups, h)
	switch {
	case s.group != tls.X25519 && s.group != tls.X25519MLKEM768:
		return s.refuse(OtherGroup)
	case key == nil:
		return s.refuse(Retry)
	case !s.takeShare(key):
		return s.refuse(BadShare)
	}
	var ok bool
	if s.protocol, ok = chooseProtocol(o.Protocols, h.ALPN); !ok {
		return s.refuse(NoProtocol)
	}
	s.resumed = fullHandshake
	s.of = suites[s.suiteID]
	s.schedule = scheduleOf(s.of)
	s.early = s.of.early
	_, _ = rand.Read(s.random[:]) // it never fails
	_, _ = rand.Read(s.Exchange.Private[:])
	s.change(chosen)
	return Accepted
}

// takeShare takes the client's key. That of a hybrid is a key of ML-KEM and then one of X25519; so are the shared
// secret and the answer (RFC 9794, draft-ietf-tls-ecdhe-mlkem 4).
func (s *Server) takeShare(key []byte) bool {
	s.sharedSize = 0
	if s.group == tls.X25519MLKEM768 {
		if len(key) != mlkem.EncapsulationKeySize768+x25519.Size {
			return false
		}
		public, err := mlkem.NewEncapsulationKey768(key[:mlkem.EncapsulationKeySize768])
		if err != nil {
			return false
		}
		secret, ciphertext := public.Encapsulate()
		s.sharedSize = copy(s.shared[:], secret)
		clear(secret)
		s.ciphertext = ciphertext
		key = key[mlkem.EncapsulationKeySize768:]
	}
	if len(key) != x25519.Size {
		return false
	}
	copy(s.Exchange.Peer[:], key)
	return true
}

// Certify sets the certificate of a full handshake. It must not change before Complete.
func (s *Server) Certify(cert *tls.Certificate) Reason {
	if s.scheme = chooseScheme(cert, s.Hello.Signatures); s.scheme == nil || !encodable(cert) {
		return s.refuse(NoScheme)
	}
	s.cert = cert
	s.change(identified)
	return Accepted
}

// Resume resumes session i of the hello, whose secret and cipher suite are given. It reports false if the session is of
// another hash, so that it is not for this handshake: the next one may be. A binder that is wrong is refused.
func (s *Server) Resume(i int, session []byte, suiteID uint16) (ok bool, r Reason) {
	of := suites[suiteID]
	if of == nil || of.schedules != s.of.schedules || len(session) > s.schedule.block {
		return false, Accepted
	}
	k := s.schedule
	var binderKey, want secret
	k.hmac(s.early[:k.size], zeros[:k.size], session)
	k.derive(&binderKey, &s.early, "res binder", s.of.empty[:k.size])
	// The transcript of a binder ends before the list of binders (RFC 8446 4.2.11.2). It is the first one here.
	k.transcript.Write(s.message[:s.Hello.bindersAt])
	k.finished(want[:k.size], &binderKey, k.hash())
	k.transcript.Reset()
	clear(binderKey[:])
	if !hmac.Equal(want[:k.size], s.Hello.binder(i)) {
		return false, s.refuse(BadBinder)
	}
	s.resumed = i
	s.change(identified)
	return true, Accepted
}

// Exchanged goes on once Exchange is computed. A full handshake awaits its signature then.
func (s *Server) Exchanged() Reason {
	if !s.Exchange.Secure() {
		return s.refuse(BadShare)
	}
	copy(s.shared[s.sharedSize:], s.Exchange.Shared[:])
	s.sharedSize += x25519.Size
	k := s.schedule
	k.transcript.Write(s.message)
	s.out = s.appendServerHello(s.out[:0])
	s.helloEnd = len(s.out)
	k.transcript.Write(s.out)

	hash := k.hash()
	k.next(&s.handshake, &s.early, s.of, s.shared[:s.sharedSize])
	clear(s.shared[:])
	s.Exchange.Clear()
	k.traffic(&s.handshakeWrite, s.of, &s.handshake, "s hs traffic", hash)
	k.traffic(&s.handshakeRead, s.of, &s.handshake, "c hs traffic", hash)

	s.out = s.appendExtensions(s.out)
	if s.resumed == fullHandshake {
		s.out = s.appendCertificate(s.out)
	}
	k.transcript.Write(s.out[s.helloEnd:])
	if s.resumed != fullHandshake {
		s.change(exchangedResumed)
		s.finish()
		return Accepted
	}
	s.setToSign(k.hash())
	s.change(exchanged)
	return Accepted
}

// signedContext is in front of what a server signs (RFC 8446 4.4.3), behind 64 spaces and before a zero byte.
const (
	signedContext = "TLS 1.3, server CertificateVerify"
	signedPrefix  = 64 + len(signedContext) + 1
)

func (s *Server) setToSign(hash []byte) {
	b := s.toSign[:0]
	for range 64 {
		b = append(b, ' ')
	}
	b = append(append(b, signedContext...), 0)
	b = append(b, hash...)
	switch s.scheme.hash {
	case crypto.SHA256:
		sum := sha256.Sum256(b)
		copy(s.digest[:], sum[:])
	case crypto.SHA384:
		sum := sha512.Sum384(b)
		copy(s.digest[:], sum[:])
	case crypto.SHA512:
		s.digest = sha512.Sum512(b)
	}
}

// ToSign returns what the key of the certificate has to sign: the message, its digest, which is empty where the key takes
// the message, and the options of crypto.Signer. It is valid until Signed.
func (s *Server) ToSign() (message, digest []byte, opts crypto.SignerOpts) {
	if h := s.scheme.hash; h != 0 {
		digest = s.digest[:h.Size()]
	}
	return s.toSign[:signedPrefix+s.schedule.size], digest, s.scheme.opts
}

// Signed takes the signature and completes the messages.
func (s *Server) Signed(signature []byte) {
	start := len(s.out)
	s.out = s.appendCertificateVerify(s.out, signature)
	s.schedule.transcript.Write(s.out[start:])
	s.change(signed)
	s.finish()
}

// finish makes the Finished, and the secrets that follow from the whole transcript.
func (s *Server) finish() {
	k := s.schedule
	start := len(s.out)
	s.out = append(s.out, messageFinished, 0, 0, byte(k.size))
	s.out = append(s.out, s.out[:k.size]...) // room
	k.finished(s.out[start+messageHeader:], &s.handshakeWrite.secret, k.hash())
	k.transcript.Write(s.out[start:])

	hash := k.hash()
	var master secret
	k.next(&master, &s.handshake, s.of, zeros[:k.size])
	k.traffic(&s.write, s.of, &master, "s ap traffic", hash)
	k.traffic(&s.read, s.of, &master, "c ap traffic", hash)
	k.derive(&s.exporter, &master, "exp master", hash)
	k.finished(s.verify[:k.size], &s.handshakeRead.secret, hash)

	// The client's Finished is known before it comes, so the session's secret is, too.
	s.client = [len(s.client)]byte{messageFinished, 0, 0, byte(k.size)}
	copy(s.client[messageHeader:], s.verify[:k.size])
	k.transcript.Write(s.client[:messageHeader+k.size])
	k.derive(&s.ticket, &master, "res master", k.hash())
	k.expand(s.ticket[:k.size], s.ticket[:k.size], "resumption", nil) // the nonce of the only ticket is empty
	clear(master[:])
	clear(s.handshake[:])
	clear(s.early[:])
}

// zeros is the input of the last stage of the key schedule, as long as a hash.
var zeros secret
