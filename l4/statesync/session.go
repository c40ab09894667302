package statesync

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/millrace/millrace/gpukern/aead"
)

// version is that of the format, oldest the least that is understood. Both gateways use the lower of their versions: the
// listener answers with it, and a dialer whose listener answers with a lower one, and hangs up because it knows no other,
// dials again with that.
const (
	version = 2 // records have windows
	oldest  = 1
)

// maxFrame bounds a frame, sealed.
const maxFrame = 1 << 15

// Times of a stream.
const (
	heartbeatEvery = 500 * time.Millisecond
	deadAfter      = 3 * time.Second // without a frame, or for one write
)

// Types of messages: their first byte.
const (
	typeConfig = 1 + iota
	typeRecords
	typeHeartbeat
	typeEcho
)

// Errors of a handshake.
var (
	ErrVersion = errors.New("the peer speaks another version")
	ErrKey     = errors.New("the peer has another key")
)

// olderError is the version of a listener that is older than this gateway.
type olderError byte

func (e olderError) Error() string { return fmt.Sprintf("the peer speaks version %d", byte(e)) }

var magic = [4]byte{'M', 'R', 'S', 'Y'}

const helloLen = 4 + 1 + 32

// session is a stream of sealed frames.
type session struct {
	conn       net.Conn
	version    byte
	send, recv cipher.AEAD
	sent, rcvd uint64 // frames, which number them
	out, in    []byte
}

// newSession exchanges hellos and derives the keys. The dialer speaks first, the versions up to most: the listener answers
// with the highest that both understand. The keys are of a version, so that what is sent in one is not read in another.
func newSession(conn net.Conn, key []byte, dialer bool, most byte) (*session, error) {
	var mine, theirs [helloLen]byte
	copy(mine[:], magic[:])
	mine[4] = most
	if _, err := rand.Read(mine[5:]); err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(deadAfter))
	if dialer {
		if _, err := conn.Write(mine[:]); err != nil {
			return nil, err
		}
	}
	if _, err := io.ReadFull(conn, theirs[:]); err != nil {
		return nil, err
	}
	switch v := theirs[4]; {
	case [4]byte(theirs[:4]) != magic:
		return nil, ErrFormat
	case v < oldest || dialer && v > most:
		return nil, fmt.Errorf("%w: %d, not %d", ErrVersion, v, most)
	case dialer && v < most: // an older listener hangs up now, since it does not know most
		return nil, olderError(v)
	}
	if !dialer {
		mine[4] = min(most, theirs[4])
		if _, err := conn.Write(mine[:]); err != nil {
			return nil, err
		}
	}
	agreed := mine[4]
	first, second := mine[5:], theirs[5:]
	if !dialer {
		first, second = second, first
	}
	salt := append(append([]byte(nil), first...), second...)
	toListener, err := newAEAD(key, salt, fmt.Sprintf("millrace state sync %d, to the listener", agreed))
	if err != nil {
		return nil, err
	}
	toDialer, err := newAEAD(key, salt, fmt.Sprintf("millrace state sync %d, to the dialer", agreed))
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, version: agreed, send: toListener, recv: toDialer, in: make([]byte, maxFrame)}
	if !dialer {
		s.send, s.recv = toDialer, toListener
	}
	return s, nil
}

func newAEAD(key, salt []byte, info string) (cipher.AEAD, error) {
	k, err := hkdf.Key(sha256.New, key, salt, info, 32)
	if err != nil {
		return nil, err
	}
	return aead.New(aead.AES256GCM, k)
}

// nonce numbers a frame. Keys are those of one stream and direction, so no number comes twice.
func nonce(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 4, 12), n) }

// write seals and sends a message.
func (s *session) write(msg []byte) error {
	s.out = append(s.out[:0], 0, 0)
	s.out = s.send.Seal(s.out, nonce(s.sent), msg, nil)
	s.sent++
	binary.BigEndian.PutUint16(s.out, uint16(len(s.out)-2))
	s.conn.SetWriteDeadline(time.Now().Add(deadAfter))
	_, err := s.conn.Write(s.out)
	return err
}

// read returns the next message, which is valid until the next call.
func (s *session) read() ([]byte, error) {
	s.conn.SetReadDeadline(time.Now().Add(deadAfter))
	var head [2]byte
	if _, err := io.ReadFull(s.conn, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n > maxFrame || n < s.recv.Overhead()+1 {
		return nil, ErrFormat
	}
	if _, err := io.ReadFull(s.conn, s.in[:n]); err != nil {
		return nil, err
	}
	msg, err := s.recv.Open(s.in[:0], nonce(s.rcvd), s.in[:n], nil)
	if err != nil {
		return nil, ErrKey
	}
	s.rcvd++
	return msg, nil
}

// Agreement holds what two gateways must have in common, but for Index, in which they must differ.
type Agreement struct {
	Index       uint8 // of the gateway: which half of the SNAT ports it takes
	Loops       uint16
	First, Last uint16 // SNAT ports
}

// speaksLater is set in the index of a gateway that understands version 2. The hello is not sealed, this is: so no one on the
// network can have two such gateways fall back to version 1. A gateway of version 1 compares the index with its own, and
// leaves it to this one to find that they are equal.
const speaksLater = 0x80

// agree exchanges agreements and says why they do not fit. The exchange proves to both that the other has the key.
func (s *session) agree(a Agreement) error {
	msg := []byte{typeConfig, a.Index | speaksLater}
	for _, v := range []uint16{a.Loops, a.First, a.Last} {
		msg = binary.BigEndian.AppendUint16(msg, v)
	}
	if err := s.write(msg); err != nil {
		return err
	}
	b, err := s.read()
	if err != nil {
		return err
	}
	if len(b) != len(msg) || b[0] != typeConfig {
		return ErrFormat
	}
	if later := b[1]&speaksLater != 0; later && s.version < version {
		return fmt.Errorf("%w: it speaks %d as well, but was asked for %d: someone has changed the first message", ErrVersion, version, s.version)
	}
	o := Agreement{b[1] &^ speaksLater, binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])}
	switch {
	case o.Index == a.Index:
		return fmt.Errorf("both gateways have sync.index %d", a.Index)
	case o.Loops != a.Loops:
		return fmt.Errorf("the peer has %d loops (devices[].queues), this gateway %d", o.Loops, a.Loops)
	case o.First != a.First || o.Last != a.Last:
		return fmt.Errorf("the peer has snat_ports %d-%d, this gateway %d-%d", o.First, o.Last, a.First, a.Last)
	}
	return nil
}
