package tls

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"

	"github.com/millrace/millrace/gpukern/sign"
	"github.com/millrace/millrace/tls/handshake13"
)

// serverHandshake is a server's handshake by package handshake13, until its flight is sent. Then it is finishing.
//
// It sends nothing before all of the flight is there. Up to that point crypto/tls can take over with what has arrived,
// and does for everything that is not the common case: what Config and ClientHello need for it is listed in ownConfig and
// in the reasons of handshake13. So whatever a client does wrong until then, the answer is crypto/tls's.
type serverHandshake struct {
	e       *Engine
	user    *tls.Config // the engine's
	config  *tls.Config // that, or what GetConfigForClient returned
	asked   *askedConfig
	state   serverState
	held    *[]byte // the record of the ClientHello, as far as it has arrived
	hs      *handshake13.Server
	name    string // of the server, as the client sent it
	info    *tls.ClientHelloInfo
	cancel  context.CancelFunc // of info's context
	cert    *tls.Certificate
	request *sign.Request // the signature that the batch is to make
}

// serverState is the state of a serverHandshake.
type serverState uint8

const (
	collecting serverState = iota // the ClientHello
	waiting                       // for the loop's batch
	decided                       // the flight is there, or crypto/tls has to answer
)

// nextServer takes input until the flight is sent.
func (e *Engine) nextServer(in []byte) (Event, int, error) {
	s, n := e.srv, 0
	if s.state == collecting {
		if len(in) == 0 {
			return Event{}, 0, nil
		}
		var own, whole bool
		if n, own, whole = s.collect(in); own && !whole {
			return Event{}, n, nil
		}
		if s.state = decided; own {
			s.start()
		}
	}
	if s.state == waiting {
		return Event{Kind: AwaitingSignature}, n, nil
	}
	if !s.send() {
		return s.handOver(in, n)
	}
	ev, used, err := e.nextFinished(in[n:])
	return ev, n + used, err
}

// collect takes the record of the ClientHello, which holds that message and nothing else. own is false as soon as that is not
// so.
func (s *serverHandshake) collect(in []byte) (n int, own, whole bool) {
	if s.held == nil {
		if !ownConfig(s.user, &s.e.options) {
			return 0, false, false
		}
		s.held = takeBuffer(smallBuffer)
	}
	for {
		have := *s.held
		size, ok := helloRecordSize(have)
		if !ok || len(have) == size {
			return n, ok, ok
		}
		if len(in) == n {
			return n, true, false
		}
		if cap(have) < size {
			large := takeBuffer(size)
			*large = append(*large, have...)
			giveBuffer(s.held)
			s.held = large
		}
		part := in[n:min(len(in), n+size-len(have))]
		*s.held = append(*s.held, part...)
		n += len(part)
	}
}

// helloHeaders is the size of the headers of record and message in bytes:
//
//	type=22 version=3.x length(2) | type=1 length(3)
const helloHeaders = recordHeader + messageHeader

// helloRecordSize returns the size of a record that begins with b, or that of the headers while they are not whole. ok is false
// if it is not a record of one whole ClientHello.
func helloRecordSize(b []byte) (size int, ok bool) {
	want := [...]struct {
		at    int
		value byte
	}{{0, typeHandshake}, {1, 3}, {recordHeader, messageClientHello}, {recordHeader + 1, 0}}
	for _, w := range want {
		if len(b) > w.at && b[w.at] != w.value {
			return 0, false
		}
	}
	if len(b) < helloHeaders {
		return helloHeaders, true
	}
	record, message := int(b[3])<<8|int(b[4]), int(b[7])<<8|int(b[8])
	return recordHeader + record, record == messageHeader+message && record <= maxHeard
}

// start answers the ClientHello, up to its key exchange.
func (s *serverHandshake) start() {
	s.hs = handshake13.New()
	if !s.accept() || !s.identify() {
		return
	}
	if q := s.e.options.Signatures; q != nil {
		s.state = waiting
		s.hs.Exchange.Done = s.exchanged
		q.exchanges.Add(&s.hs.Exchange)
		return
	}
	s.hs.Exchange.Compute()
	s.exchanged()
}

// exchanged goes on when the key exchange is computed.
func (s *serverHandshake) exchanged() {
	if s.hs.Exchanged() != handshake13.Accepted || s.hs.State() == handshake13.Complete {
		s.decide()
		return
	}
	message, digest, opts := s.hs.ToSign()
	if q, key := s.e.options.Signatures, sign.Of(s.cert.PrivateKey); q != nil && key != nil && len(digest) > 0 {
		if r := key.Request(rand.Reader, digest, opts); r != nil {
			r.Done = func() { s.signed(key.Result(r)) }
			s.request = r
			q.batch.Add(r)
			return
		}
	}
	s.signed(crypto.SignMessage(s.cert.PrivateKey.(crypto.Signer), rand.Reader, message, opts)) // chosen by its type
}

// signed goes on when the signature is made. crypto/tls has the answer to an error.
func (s *serverHandshake) signed(signature []byte, err error) {
	if err == nil {
		s.hs.Signed(signature)
	}
	s.decide()
}

// decide has Next go on, which the loop calls.
func (s *serverHandshake) decide() {
	waited := s.state == waiting
	s.state = decided
	if waited && s.e.options.Signed != nil {
		s.e.options.Signed()
	}
}

// send sends the flight and a ticket, and waits for the client's Finished. It reports false, and has sent nothing, if crypto/tls has to
// answer.
func (s *serverHandshake) send() bool {
	if s.hs == nil || s.hs.State() != handshake13.Complete {
		return false
	}
	state := s.connectionState()
	ticket, ok := s.newTicket(state)
	if !ok {
		return false
	}
	state.HandshakeComplete = true // when it is first seen
	e, of := s.e, suiteOf(state.CipherSuite)
	r := &records{e: e, suite: of}
	r.read.set(of, s.hs.HandshakeRead())
	r.write.set(of, s.hs.HandshakeWrite())

	hello, flight := s.hs.ServerHello(), s.hs.Flight()
	out := &e.out
	out.grow(recordHeader + len(hello) + len(compatibilityRecord) + sealedSize(flight) + sealedSize(ticket))
	b := append(out.buf, typeHandshake, 3, 3, byte(len(hello)>>8), byte(len(hello)))
	b = append(append(b, hello...), compatibilityRecord...)
	b = r.write.sealMessages(b, flight)
	r.write = protection{}
	r.write.set(of, s.hs.DataWrite())
	r.write.secret = bytes.Clone(s.hs.DataWrite().Secret()) // of key updates
	out.set(r.write.sealMessages(b, ticket))
	if !s.config.DynamicRecordSizingDisabled {
		r.young = growing
	}
	e.fin = &finishing{records: r, state: *state, verify: bytes.Clone(s.hs.Verify()), secret: bytes.Clone(s.hs.DataRead().Secret())}
	e.srv, e.ownHello = nil, true
	s.release()
	return true
}

// compatibilityRecord is a record for middleboxes (RFC 8446 D.4).
var compatibilityRecord = []byte{typeChangeCipherSpec, 3, 3, 0, 1, 1}

// sealMessages appends records of handshake messages to dst, which has the capacity for sealedSize.
func (p *protection) sealMessages(dst, messages []byte) []byte {
	for len(messages) > 0 {
		n := min(len(messages), maxPlaintext)
		dst = p.seal(dst, typeHandshake, messages[:n])
		messages = messages[n:]
	}
	return dst
}

// sealedSize returns the most bytes that records of messages take.
func sealedSize(messages []byte) int {
	return len(messages) + (len(messages)/maxPlaintext+1)*maxOverhead
}

// set takes keys that are derived already.
func (p *protection) set(s *suite, k *handshake13.Keys) {
	p.version, p.aead, p.iv = tls.VersionTLS13, s.aead(k.Key()), k.IV()
}

// handOver has crypto/tls make the handshake from its first byte. n bytes of in are held.
func (s *serverHandshake) handOver(in []byte, n int) (Event, int, error) {
	e := s.e
	e.srv, e.hs = nil, newHandshake(e, s.user)
	e.hs.asked = s.asked
	defer s.release()
	held := 0
	if s.held != nil {
		held = len(*s.held)
	}
	all := in[n:]
	if held > 0 {
		all = append((*s.held)[:held:held], all...)
	}
	ev, used, err := e.nextHandshake(all)
	return ev, n + max(0, used-held), err
}

// release withdraws what waits, and frees the memory.
func (s *serverHandshake) release() {
	if s.cancel != nil {
		s.cancel()
	}
	if s.request != nil {
		s.request.Cancel()
		s.request = nil
	}
	if s.held != nil {
		giveBuffer(s.held)
		s.held = nil
	}
	if s.hs != nil {
		s.hs.Release()
		s.hs = nil
	}
}
