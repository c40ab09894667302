package quic_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"
)

// rawClient is a QUIC client that sends what a test tells it to, allowed or not. It has a handshake
// (crypto/tls), packet protection (RFC 9001 5) and a parser of the frames that servers send. It
// retransmits nothing and acknowledges only what it needs to.
type rawClient struct {
	t          testing.TB
	conn       *net.UDPConn
	server     net.Addr
	dcid, scid []byte
	tls        *tls.QUICConn
	spaces     [3]rawSpace
	token      []byte
	hello      []byte // the ClientHello

	confirmed      bool // HANDSHAKE_DONE has come
	closed         bool
	closeCode      uint64
	sent, received int // bytes of UDP payload
	streams        map[uint64]int
	maxStreams     uint64 // bidirectional ones that the server permits
	responses      int    // PATH_RESPONSE frames
	quiet          bool   // sends no acknowledgments
	optimistic     bool   // acknowledges all from 0 to the largest
	retries        int
	negotiations   int
}

// Packet number spaces, in the order of tls.QUICEncryptionLevel without early data.
const (
	initial = iota
	handshaking
	application
)

// rawSpace is a packet number space (RFC 9000 12.3).
type rawSpace struct {
	read, write *rawKeys
	pn          uint64 // next
	largest     uint64
	cryptoSent  uint64
	cryptoRead  uint64
	phase       byte              // key phase
	early       map[uint64][]byte // crypto data ahead of its turn
}

// rawKeys protect packets of one direction with AES-128-GCM.
type rawKeys struct {
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	hp     cipher.Block
}

// expandLabel is HKDF-Expand-Label with an empty context (RFC 8446 7.1).
func expandLabel(secret []byte, label string, n int) []byte {
	label = "tls13 " + label
	info := append(binary.BigEndian.AppendUint16(nil, uint16(n)), byte(len(label)))
	info = append(append(info, label...), 0)
	b, err := hkdf.Expand(sha256.New, secret, string(info), n)
	if err != nil {
		panic(err)
	}
	return b
}

// newRawKeys derives the keys of a secret (RFC 9001 5.1).
func newRawKeys(secret []byte) *rawKeys {
	block, _ := aes.NewCipher(expandLabel(secret, "quic key", 16))
	aead, _ := cipher.NewGCM(block)
	hp, _ := aes.NewCipher(expandLabel(secret, "quic hp", 16))
	return &rawKeys{secret, aead, expandLabel(secret, "quic iv", 12), hp}
}

// next are the keys of the next phase (RFC 9001 6.1).
func (k *rawKeys) next() *rawKeys {
	n := newRawKeys(expandLabel(k.secret, "quic ku", 32))
	n.hp = k.hp
	return n
}

// initialSalt is that of version 1 (RFC 9001 5.2).
var initialSalt = []byte{
	0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17,
	0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
}

// initialKeys follow from the client's first destination connection ID (RFC 9001 5.2).
func initialKeys(dcid []byte) (client, server *rawKeys) {
	secret, err := hkdf.Extract(sha256.New, dcid, initialSalt)
	if err != nil {
		panic(err)
	}
	return newRawKeys(expandLabel(secret, "client in", 32)), newRawKeys(expandLabel(secret, "server in", 32))
}

func (k *rawKeys) nonce(pn uint64) []byte {
	n := slices.Clone(k.iv)
	for i := range 8 {
		n[4+i] ^= byte(pn >> (56 - 8*i))
	}
	return n
}

// mask is the mask of header protection (RFC 9001 5.4.3).
func (k *rawKeys) mask(sample []byte) (m [16]byte) {
	k.hp.Encrypt(m[:], sample[:16])
	return m
}

func newRawClient(t testing.TB, server net.Addr) *rawClient {
	c := &rawClient{t: t, conn: udpConn(t), server: server, dcid: make([]byte, 8), scid: make([]byte, 8), streams: map[uint64]int{}}
	_ = c.conn.SetReadBuffer(4 << 20)
	_, _ = rand.Read(c.dcid)
	_, _ = rand.Read(c.scid)
	t.Cleanup(func() { _ = c.conn.Close() })
	c.spaces[initial].write, c.spaces[initial].read = initialKeys(c.dcid)
	tc := clientTLS()
	tc.MinVersion = tls.VersionTLS13
	c.tls = tls.QUICClient(&tls.QUICConfig{TLSConfig: tc})
	c.tls.SetTransportParameters(c.parameters())
	if err := c.tls.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.tls.Close() })
	return c
}

// parameters are the transport parameters (RFC 9000 18.2): large windows, and the connection ID.
func (c *rawClient) parameters() (b []byte) {
	for _, p := range []struct{ id, v uint64 }{
		{0x01, 30_000}, {0x04, 1 << 30}, {0x05, 1 << 30}, {0x06, 1 << 30}, {0x07, 1 << 30}, {0x08, 100}, {0x09, 100},
	} {
		v := appendVarint(nil, p.v)
		b = append(appendVarint(appendVarint(b, p.id), uint64(len(v))), v...)
	}
	return append(appendVarint(appendVarint(b, 0x0f), uint64(len(c.scid))), c.scid...)
}

func appendVarint(b []byte, v uint64) []byte {
	switch {
	case v < 1<<6:
		return append(b, byte(v))
	case v < 1<<14:
		return binary.BigEndian.AppendUint16(b, uint16(v)|0x4000)
	case v < 1<<30:
		return binary.BigEndian.AppendUint32(b, uint32(v)|0x80000000)
	}
	return binary.BigEndian.AppendUint64(b, v|0xc000000000000000)
}

// packet returns a protected packet of frames.
//
//	long:  1 1 T T 0 0 P P | version | DCID | SCID | [token] | length | packet number (4) | payload
//	short: 0 1 0 0 0 0 P P | DCID | packet number (4) | payload
func (c *rawClient) packet(space int, frames []byte) []byte {
	s := &c.spaces[space]
	for len(frames) < 4 {
		frames = append(frames, 0) // room for the sample of header protection
	}
	var b []byte
	if space == application {
		b = append([]byte{0x43 | s.phase<<2}, c.dcid...)
	} else {
		b = []byte{0xc3 | byte(space<<5), 0, 0, 0, 1, byte(len(c.dcid))} // Initial is 0, Handshake 2
		b = append(append(append(b, c.dcid...), byte(len(c.scid))), c.scid...)
		if space == initial {
			b = append(appendVarint(b, uint64(len(c.token))), c.token...)
		}
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(frames)+16)|0x4000)
	}
	at := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(s.pn))
	b = s.write.aead.Seal(b, s.write.nonce(s.pn), frames, b)
	s.pn++
	m := s.write.mask(b[at+4:])
	if space == application {
		b[0] ^= m[0] & 0x1f
	} else {
		b[0] ^= m[0] & 0x0f
	}
	for i := range 4 {
		b[at+i] ^= m[1+i]
	}
	return b
}

// send sends frames in one packet. Initial packets are padded (RFC 9000 14.1).
func (c *rawClient) send(space int, frames []byte) {
	if space == initial {
		frames = append(frames, make([]byte, max(0, 1200-46-len(c.token)-len(frames)))...)
	}
	c.sendRaw(c.packet(space, frames))
}

func (c *rawClient) sendRaw(b []byte) {
	c.sent += len(b)
	_, _ = c.conn.WriteTo(b, c.server)
}

// advance handles the events of the handshake, and sends what they produce.
func (c *rawClient) advance() {
	for {
		ev := c.tls.NextEvent()
		switch ev.Kind {
		case tls.QUICNoEvent:
			return
		case tls.QUICWriteData:
			if ev.Level == tls.QUICEncryptionLevelInitial {
				c.hello = append(c.hello, ev.Data...)
			}
			c.sendCrypto(levelSpace(ev.Level), ev.Data)
		case tls.QUICSetReadSecret, tls.QUICSetWriteSecret:
			if ev.Suite != tls.TLS_AES_128_GCM_SHA256 {
				c.t.Skipf("the server chose %s, and the raw client has only AES-128-GCM", tls.CipherSuiteName(ev.Suite))
			}
			s := &c.spaces[levelSpace(ev.Level)]
			if ev.Kind == tls.QUICSetReadSecret {
				s.read = newRawKeys(ev.Data)
			} else {
				s.write = newRawKeys(ev.Data)
			}
		}
	}
}

func levelSpace(l tls.QUICEncryptionLevel) int {
	switch l {
	case tls.QUICEncryptionLevelInitial:
		return initial
	case tls.QUICEncryptionLevelHandshake:
		return handshaking
	}
	return application
}

// sendCrypto sends handshake data in CRYPTO frames (RFC 9000 19.6).
func (c *rawClient) sendCrypto(space int, data []byte) {
	s := &c.spaces[space]
	for chunk := range slices.Chunk(data, 1000) {
		c.send(space, cryptoFrame(s.cryptoSent, chunk))
		s.cryptoSent += uint64(len(chunk))
	}
}

func cryptoFrame(offset uint64, data []byte) []byte {
	b := appendVarint(appendVarint([]byte{0x06}, offset), uint64(len(data)))
	return append(b, data...)
}

// ackFrame acknowledges packet numbers from..to (RFC 9000 19.3).
func ackFrame(from, to uint64) []byte {
	b := appendVarint([]byte{0x02}, to)
	b = append(b, 0, 0)
	return appendVarint(b, to-from)
}

// streamFrame is a STREAM frame with offset and length (RFC 9000 19.8).
func streamFrame(id, offset uint64, data []byte, fin bool) []byte {
	typ := byte(0x0e)
	if fin {
		typ |= 1
	}
	b := appendVarint(appendVarint(appendVarint([]byte{typ}, id), offset), uint64(len(data)))
	return append(b, data...)
}

// handshake completes the handshake, and fails the test if that takes too long.
func (c *rawClient) handshake() {
	c.t.Helper()
	c.advance()
	for end := time.Now().Add(patience); !c.confirmed; {
		if time.Now().After(end) || c.closed {
			c.t.Fatalf("no handshake: closed %v, code %#x", c.closed, c.closeCode)
		}
		c.receive(time.Second)
	}
}

// untilClosed reads until the server closes the connection, and returns its code.
func (c *rawClient) untilClosed() (code uint64) {
	c.t.Helper()
	for end := time.Now().Add(patience); !c.closed; {
		if time.Now().After(end) {
			c.t.Fatal("the server did not close the connection")
		}
		c.receive(time.Second)
	}
	return c.closeCode
}

// receive handles one datagram, if one comes in time.
func (c *rawClient) receive(wait time.Duration) bool {
	_ = c.conn.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 65536)
	n, _, err := c.conn.ReadFrom(buf)
	if err != nil {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.Error(err)
		}
		return false
	}
	c.received += n
	for b := buf[:n]; len(b) > 0; {
		b = c.receivePacket(b)
	}
	return true
}

// receivePacket handles the first packet of a datagram and returns the rest.
func (c *rawClient) receivePacket(b []byte) (rest []byte) {
	space, at := application, 1+len(c.scid)
	if b[0]&0x80 != 0 {
		version := binary.BigEndian.Uint32(b[1:])
		switch kind := b[0] >> 4 & 3; {
		case version == 0:
			c.negotiations++
			return nil
		case kind == 3:
			c.retry(b)
			return nil
		case kind == 2:
			space = handshaking
		default:
			space = initial
		}
		at = 6 + int(b[5])
		scid := b[at+1 : at+1+int(b[at])]
		at += 1 + len(scid)
		if space == initial {
			if c.spaces[handshaking].read == nil {
				c.dcid = slices.Clone(scid) // RFC 9000 7.2
			}
			token, n := varint(b[at:])
			at += n + int(token)
		}
		length, n := varint(b[at:])
		at += n
		b, rest = b[:at+int(length)], b[at+int(length):]
	}
	if k := c.spaces[space].read; k != nil {
		c.open(space, k, b, at)
	}
	return rest
}

// open removes the protection of a packet whose number is at b[at].
func (c *rawClient) open(space int, k *rawKeys, b []byte, at int) {
	m := k.mask(b[at+4:])
	bits := byte(0x0f)
	if space == application {
		bits = 0x1f
	}
	b[0] ^= m[0] & bits
	n := int(b[0]&3) + 1
	var pn uint64
	for i := range n {
		b[at+i] ^= m[1+i]
		pn = pn<<8 | uint64(b[at+i])
	}
	s := &c.spaces[space]
	pn = fullNumber(pn, n, s.largest)
	if space == application && b[0]>>2&1 != s.phase { // the server updates keys after 100 packets
		s.read, s.write, s.phase = s.read.next(), s.write.next(), s.phase^1
		k = s.read
	}
	payload, err := k.aead.Open(nil, k.nonce(pn), b[at+n:], b[:at+n])
	if err != nil {
		return
	}
	s.largest = max(s.largest, pn)
	if c.frames(space, payload) && !c.quiet && c.spaces[space].write != nil {
		from := pn
		if c.optimistic {
			from = 0
		}
		c.send(space, ackFrame(from, max(pn, map[bool]uint64{true: s.largest}[c.optimistic])))
	}
}

// fullNumber decodes a packet number (RFC 9000 A.3).
func fullNumber(truncated uint64, n int, largest uint64) uint64 {
	window := uint64(1) << (8 * n)
	full := (largest+1)&^(window-1) | truncated
	switch {
	case full+window/2 <= largest+1:
		return full + window
	case full > largest+1+window/2 && full >= window:
		return full - window
	}
	return full
}

// retry starts again with the token of a Retry packet (RFC 9000 17.2.5): the last 16 bytes are its tag.
func (c *rawClient) retry(b []byte) {
	c.retries++
	if c.token != nil {
		return
	}
	at := 6 + int(b[5])
	c.dcid = slices.Clone(b[at+1 : at+1+int(b[at])])
	c.token = slices.Clone(b[at+1+len(c.dcid) : len(b)-16])
	s := &c.spaces[initial]
	s.write, s.read = initialKeys(c.dcid)
	s.cryptoSent = 0
	c.sendCrypto(initial, c.hello)
}

// frames handles the frames of a packet, and reports whether they ask for an acknowledgment.
func (c *rawClient) frames(space int, b []byte) (eliciting bool) {
	next := func() uint64 {
		v, n := varint(b)
		b = b[n:]
		return v
	}
	for len(b) > 0 {
		typ := next()
		if typ != 0 && typ != 2 && typ != 3 && typ != 0x1c && typ != 0x1d {
			eliciting = true
		}
		switch {
		case typ <= 1 || typ == 0x1e: // PADDING, PING, HANDSHAKE_DONE
			c.confirmed = c.confirmed || typ == 0x1e
		case typ == 2 || typ == 3: // ACK
			next()
			next()
			ranges := next()
			for range 1 + 2*ranges {
				next()
			}
			if typ == 3 {
				next()
				next()
				next()
			}
		case typ == 6: // CRYPTO
			offset, length := next(), next()
			c.crypto(space, offset, b[:length])
			b = b[length:]
		case typ == 7: // NEW_TOKEN
			b = b[next():]
		case typ >= 8 && typ <= 0xf: // STREAM
			id := next()
			if typ&4 != 0 {
				next()
			}
			length := uint64(len(b))
			if typ&2 != 0 {
				length = next()
			}
			c.streams[id] += int(length)
			b = b[length:]
		case typ == 0x18: // NEW_CONNECTION_ID
			next()
			next()
			b = b[1+int(b[0])+16:]
		case typ == 0x1a || typ == 0x1b: // PATH_CHALLENGE, PATH_RESPONSE
			if typ == 0x1b {
				c.responses++
			}
			b = b[8:]
		case typ == 0x1c || typ == 0x1d: // CONNECTION_CLOSE
			c.closed, c.closeCode = true, next()
			return eliciting
		case typ == 0x12: // MAX_STREAMS, bidirectional
			c.maxStreams = max(c.maxStreams, next())
		case typ == 0x10 || typ == 0x13 || typ == 0x14 || typ == 0x16 || typ == 0x17 || typ == 0x19:
			next() // MAX_DATA, unidirectional MAX_STREAMS, ...
		case typ == 4: // RESET_STREAM
			next()
			next()
			next()
		case typ == 5 || typ == 0x11 || typ == 0x15: // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED
			next()
			next()
		default:
			c.t.Errorf("frame %#x from the server", typ)
			return eliciting
		}
	}
	return eliciting
}

// crypto feeds handshake data to TLS, in order.
func (c *rawClient) crypto(space int, offset uint64, data []byte) {
	s := &c.spaces[space]
	if s.early == nil {
		s.early = map[uint64][]byte{}
	}
	s.early[offset] = slices.Clone(data)
	for {
		data, ok := s.early[s.cryptoRead]
		if !ok {
			return
		}
		delete(s.early, s.cryptoRead)
		s.cryptoRead += uint64(len(data))
		level := [...]tls.QUICEncryptionLevel{tls.QUICEncryptionLevelInitial, tls.QUICEncryptionLevelHandshake, tls.QUICEncryptionLevelApplication}[space]
		if err := c.tls.HandleData(level, data); err != nil {
			c.t.Errorf("handshake: %v", err)
		}
		c.advance()
	}
}
