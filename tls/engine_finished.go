package tls

import (
	"crypto/hmac"
	"crypto/tls"
	"hash"
	"io"
)

// finishing is a TLS 1.3 server that has sent its flight and waits for the client's Finished (RFC 8446 2).
//
// All that is missing from such a handshake is one comparison. crypto/tls would wait for it with a stack and the whole
// state of a handshake, 24 KiB, for as long as the client likes. So the engine computes what the Finished must be, ends
// crypto/tls's handshake there, and keeps a tenth of that.
//
// Handshakes whose client must show a certificate, had to send a second ClientHello, or use Encrypted Client Hello stay
// with crypto/tls, and so do those of TLS 1.2.
type finishing struct {
	records *records // reads with the keys of the handshake, writes with those of the application
	state   tls.ConnectionState
	verify  []byte // verify_data of the client's Finished
	secret  []byte // client_application_traffic_secret_0
}

// Handshake messages of the server's flight (RFC 8446 4).
const (
	messageClientHello        = 1
	messageServerHello        = 2
	messageCertificateRequest = 13
	messageFinished           = 20
	messageHeader             = 4
	serverHelloSession        = messageHeader + 2 + 32 // where ServerHello has the length of the session ID
	maxHeard                  = 16 << 10               // bytes of a ClientHello that are kept: a longer one stays with crypto/tls
)

// finishing takes the handshake over once the flight is sent, nil if it stays with crypto/tls. It ends crypto/tls's part.
func (h *handshake) finishing() *finishing {
	k := &h.keys
	if h.stays || k.role != server || k.traffic[client] == nil || k.traffic[server] == nil {
		return nil
	}
	h.stays = true // unless this succeeds
	t := k.transcript()
	if t == nil {
		return nil
	}
	r := &records{e: h.transport.e, suite: t.suite}
	r.write.init(t.suite, k.traffic[server])
	r.write.countSent(t.rest)
	mac := hmac.New(t.suite.hash, k.hands[client])
	r.read.derive(t.suite, mac)
	if !k.config.DynamicRecordSizingDisabled {
		r.young = growing
	}
	f := &finishing{records: r, verify: t.suite.verifyData(mac, t.hash.Sum(nil)), secret: k.traffic[client]}
	h.abort()
	f.state = h.conn.ConnectionState()
	f.state.HandshakeComplete = true // when it is first seen
	return f
}

// transcript holds the handshake messages up to the server's Finished.
type transcript struct {
	suite *suite
	hash  hash.Hash
	rest  []byte // records of the flight behind the Finished
}

// transcript returns that of the handshake, nil if it is not the one that crypto/tls has, which the server's Finished shows, or
// if the client has more to send than its Finished, or has sent more than its ClientHello, which crypto/tls may have read. It overwrites the records up to the server's Finished.
func (k *keyLog) transcript() *transcript {
	hello := plainMessages(k.heard)
	answer, flight := firstRecord(k.flight, typeHandshake)
	if !oneMessage(answer, messageServerHello) {
		return nil
	}
	s := suiteOfHello(answer)
	if s == nil {
		return nil
	}
	if _, after := firstRecord(flight, typeChangeCipherSpec); after != nil {
		flight = after // for middleboxes (RFC 8446 D.4)
	}
	t := &transcript{suite: s, hash: s.hash(), rest: flight}
	t.hash.Write(hello)
	t.hash.Write(answer)
	if !t.addFlight(k.hands[server]) {
		return nil
	}
	return t
}

// addFlight adds the encrypted messages of the server up to its Finished, and checks that.
func (t *transcript) addFlight(secret []byte) bool {
	var keys protection
	mac := hmac.New(t.suite.hash, secret)
	keys.derive(t.suite, mac)
	var messages []byte
	for {
		body, after := firstRecord(t.rest, typeData)
		if body == nil {
			return false
		}
		plain, typ, err := keys.open(t.rest[:recordHeader+len(body)])
		if err != nil || typ != typeHandshake {
			return false
		}
		t.rest = after
		messages = append(messages, plain...)
		for m := firstMessage(messages); m != nil; m = firstMessage(messages) {
			switch m[0] {
			case messageCertificateRequest:
				return false
			case messageFinished:
				same := hmac.Equal(m[messageHeader:], t.suite.verifyData(mac, t.hash.Sum(nil)))
				t.hash.Write(m)
				return same && len(m) == len(messages)
			}
			t.hash.Write(m)
			messages = messages[len(m):]
		}
	}
}

// verifyData is that of a Finished after a transcript (RFC 8446 4.4.4); mac is the HMAC of the secret of its sender.
func (s *suite) verifyData(mac hash.Hash, transcript []byte) []byte {
	mac = hmac.New(s.hash, expandLabel(mac, "finished", mac.Size()))
	mac.Write(transcript)
	return mac.Sum(nil)
}

// plainMessages returns the content of records that are all handshake records and whole, nil otherwise.
func plainMessages(p []byte) (messages []byte) {
	messages, p = firstRecord(p, typeHandshake)
	for len(p) > 0 && messages != nil {
		var content []byte
		if content, p = firstRecord(p, typeHandshake); content == nil {
			return nil
		}
		messages = append(messages[:len(messages):len(messages)], content...)
	}
	return messages
}

// firstRecord returns the content of the first record of p and what follows it, nil if it is not whole or of another type.
func firstRecord(p []byte, typ byte) (content, rest []byte) {
	if len(p) < recordHeader || p[0] != typ {
		return nil, nil
	}
	end := recordHeader + int(p[3])<<8 + int(p[4])
	if len(p) < end {
		return nil, nil
	}
	return p[recordHeader:end:end], p[end:]
}

// firstMessage returns the first handshake message of p, nil if it is not whole.
func firstMessage(p []byte) []byte {
	if len(p) < messageHeader {
		return nil
	}
	size := messageHeader + int(p[1])<<16 + int(p[2])<<8 + int(p[3])
	if len(p) < size {
		return nil
	}
	return p[:size]
}

// oneMessage reports whether p is one whole handshake message of a type.
func oneMessage(p []byte, typ byte) bool {
	m := firstMessage(p)
	return m != nil && m[0] == typ && len(m) == len(p)
}

// suiteOfHello returns the cipher suite that a ServerHello of TLS 1.3 chooses (RFC 8446 4.1.3).
func suiteOfHello(hello []byte) *suite {
	if len(hello) <= serverHelloSession {
		return nil
	}
	at := serverHelloSession + 1 + int(hello[serverHelloSession])
	if len(hello) < at+2 {
		return nil
	}
	return suiteOf(uint16(hello[at])<<8 | uint16(hello[at+1]))
}

// next takes input until the client's Finished has come.
func (f *finishing) next(in []byte) (Event, int, error) {
	r, n := f.records, 0
	for {
		r.input.drop()
		record, used, err := r.input.record(in[n:], tls.VersionTLS13)
		n += used
		if err == nil && record == nil {
			return Event{}, n, nil
		}
		done := false
		if err == nil {
			done, err = f.record(record)
		}
		switch {
		case err != nil:
			return Event{}, n, r.local(err)
		case done:
			r.input.drop()
			return Event{Kind: HandshakeComplete}, n, nil
		}
	}
}

// record takes a record, and reports whether it ends the handshake. An error is an alert to send, or final.
func (f *finishing) record(record []byte) (done bool, err error) {
	r := f.records
	if record[0] == typeChangeCipherSpec {
		switch {
		case len(record) != recordHeader+1 || record[recordHeader] != 1:
			return false, alertDecodeError
		case r.message != nil:
			return false, alertUnexpectedMessage
		}
		return false, countUseless(&r.empty, maxUseless) // for middleboxes (RFC 8446 D.4)
	}
	plain, typ, err := r.read.open(record)
	switch {
	case err != nil:
		return false, err
	case typ == typeAlert && r.message == nil:
		ev, err := r.alertReceived(plain)
		if err == nil && ev.Kind == PeerClosed {
			err = io.EOF // as crypto/tls has it
		}
		return false, err
	case typ != typeHandshake || len(plain) == 0:
		return false, alertUnexpectedMessage
	}
	return f.finished(plain)
}

// finished takes a part of the Finished.
func (f *finishing) finished(p []byte) (done bool, err error) {
	r := f.records
	m := append(r.message, p...)
	r.message = m
	switch {
	case m[0] != messageFinished:
		return false, alertUnexpectedMessage
	case len(m) < messageHeader:
		return false, nil
	case int(m[1])<<16+int(m[2])<<8+int(m[3]) != len(f.verify):
		return false, alertDecryptError
	case len(m) < messageHeader+len(f.verify):
		return false, nil
	case len(m) > messageHeader+len(f.verify): // it would be under the keys that end here (RFC 8446 5.1)
		return false, alertUnexpectedMessage
	case !hmac.Equal(m[messageHeader:], f.verify):
		return false, alertDecryptError
	}
	r.message, r.empty, r.warnings = nil, 0, 0
	r.read.init(r.suite, f.secret)
	return true, nil
}
