package clienthello

import (
	"encoding/binary"
	"errors"
	"io"
)

// Values of the record layer (RFC 8446 5.1, 4).
const (
	recordAlert     = 21
	recordHandshake = 22
	recordHeader    = 5
	maxRecord       = 1 << 14
	typeClientHello = 1
)

// DefaultLimit bounds the records of a ClientHello, in bytes: browsers send 2000 with a post-quantum
// key share, and tickets may add some thousand.
const DefaultLimit = 16 << 10

// Peeker finds the ClientHello at the beginning of a stream. The zero value is ready; Reset makes it
// ready for the next stream. It may not be used by several goroutines at a time.
type Peeker struct {
	// Limit bounds the bytes of the stream up to the end of the ClientHello; 0 stands for
	// DefaultLimit.
	Limit int

	hello Hello
	next  int    // where the first record begins that is not in msg
	msg   []byte // the payloads of complete records, where the hello spans several
	buf   []byte // what Read received
}

// Reset forgets the stream and keeps the buffers.
func (p *Peeker) Reset() { p.next, p.msg, p.buf = 0, p.msg[:0], p.buf[:0] }

func (p *Peeker) limit() int {
	if p.Limit > 0 {
		return p.Limit
	}
	return DefaultLimit
}

// Parse looks for the ClientHello in b, which is the stream from its first byte as far as it has
// arrived: each call has the bytes of the last one and more. It returns ErrIncomplete while the
// hello is not complete, and another error, an *Error, as soon as it cannot become one. The Hello
// aliases b and the Peeker. The cost of all calls together is proportional to the stream.
func (p *Peeker) Parse(b []byte) (*Hello, error) {
	for {
		payload, err := p.record(b)
		if err != nil {
			return nil, p.orTooLarge(b, err)
		}
		whole := payload
		if len(p.msg) > 0 {
			p.msg = append(p.msg, payload...)
			whole = p.msg
		}
		n, err := messageLen(whole)
		if err == nil && len(whole) >= 4+n {
			if err := p.hello.parse(whole[4 : 4+n]); err != nil {
				return nil, err
			}
			return &p.hello, nil
		}
		if err != nil && err != ErrIncomplete {
			return nil, err
		}
		if 4+n > p.limit() {
			return nil, errTooLarge
		}
		if len(p.msg) == 0 {
			p.msg = append(p.msg, payload...)
		}
		p.next += recordHeader + len(payload)
	}
}

// orTooLarge replaces ErrIncomplete once the stream has reached the limit.
func (p *Peeker) orTooLarge(b []byte, err error) error {
	if err == ErrIncomplete && len(b) >= p.limit() {
		return errTooLarge
	}
	return err
}

// record returns the payload of the record at next, once it is complete. It checks each byte of the
// header, and the type of the message, as soon as it is there.
func (p *Peeker) record(b []byte) ([]byte, error) {
	b = b[min(p.next, len(b)):]
	first := len(p.msg) == 0
	if len(b) > 0 && b[0] != recordHandshake {
		if !first {
			return nil, errInterleaved // RFC 8446 5.1
		}
		return nil, errRecordType
	}
	if len(b) > 1 && b[1] != 3 {
		return nil, errRecordVersion
	}
	if len(b) < recordHeader {
		return nil, ErrIncomplete
	}
	n := int(binary.BigEndian.Uint16(b[3:]))
	switch {
	case n == 0:
		return nil, errRecordEmpty
	case n > maxRecord:
		return nil, errRecordLength
	case p.next+recordHeader+n > p.limit():
		return nil, errTooLarge
	case first && len(b) > recordHeader && b[recordHeader] != typeClientHello:
		return nil, errMessageType
	case len(b) < recordHeader+n:
		return nil, ErrIncomplete
	}
	return b[recordHeader : recordHeader+n : recordHeader+n], nil
}

// readSize is the size of a Read: most hellos fit.
const readSize = 4096

// Read reads from r until the ClientHello is complete. What it read, which may be more than the
// hello, is Buffered. An error of r ends it: io.EOF is io.ErrUnexpectedEOF if the hello was cut.
func (p *Peeker) Read(r io.Reader) (*Hello, error) {
	for {
		if p.buf == nil {
			p.buf = make([]byte, 0, readSize)
		}
		if len(p.buf) == cap(p.buf) { // the limit bounds this: a full buffer is still incomplete
			p.buf = append(p.buf, make([]byte, len(p.buf))...)[:len(p.buf)]
		}
		n, err := r.Read(p.buf[len(p.buf):cap(p.buf)])
		p.buf = p.buf[:len(p.buf)+n]
		if n > 0 {
			h, parseErr := p.Parse(p.buf)
			if parseErr != ErrIncomplete {
				return h, parseErr
			}
		}
		if errors.Is(err, io.EOF) && len(p.buf) > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
}

// Buffered returns what Read received, to be forwarded. It is valid until the Peeker is used again.
func (p *Peeker) Buffered() []byte { return p.buf }
