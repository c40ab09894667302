package websocket

import (
	"encoding/binary"
	"io"
	"unicode/utf8"
)

// writer is the sending half of a Machine.
type writer struct {
	messageState
	closeSent bool
	key       uint32 // for the next payload byte of a frame begun by AppendHeader
	deflate   *deflater

	random  io.Reader
	nextKey int
	keys    [64]byte // masking keys drawn ahead: one system call for 16 frames
}

// messageState is where in a fragmented message the sending half is.
type messageState struct {
	opcode Opcode // of the message under way
	begun  bool   // its first frame was appended, and not its last
	zip    bool   // it is compressed
}

// maskKey returns a new masking key (RFC 6455 5.3: from a strong source, new for every frame).
func (w *writer) maskKey() uint32 {
	if w.nextKey == len(w.keys) {
		if _, err := io.ReadFull(w.random, w.keys[:]); err != nil {
			panic("websocket: the source of masking keys failed: " + err.Error())
		}
		w.nextKey = 0
	}
	key := binary.LittleEndian.Uint32(w.keys[w.nextKey:])
	w.nextKey += 4
	return key
}

// header appends the header of a frame and sets the key of its payload.
func (m *Machine) header(dst []byte, first byte, length int) []byte {
	if m.role == Server {
		return appendHeader(dst, first, 0, length)
	}
	m.write.key = m.write.maskKey()
	return binary.LittleEndian.AppendUint32(appendHeader(dst, first, bitMask, length), m.write.key)
}

// AppendPayload appends payload of the frame that AppendHeader began, masked where the role demands.
func (m *Machine) AppendPayload(dst, payload []byte) []byte {
	if m.role == Server {
		return append(dst, payload...)
	}
	start := len(dst)
	dst = extend(dst, len(payload))
	m.write.key = xorKey(dst[start:], payload, m.write.key)
	return dst
}

// extend lengthens dst by n bytes, whose values are not set.
func extend(dst []byte, n int) []byte {
	if len(dst)+n <= cap(dst) {
		return dst[:len(dst)+n]
	}
	return append(dst, make([]byte, n)...)
}

// AppendHeader appends the header of a data frame that is not compressed, whose length bytes of payload
// follow by AppendPayload, in pieces of any size, before anything else is appended. final means
// that the frame is the last of its message; the first of a message has its type.
// A server may also send the payload itself after the header, without a copy.
func (m *Machine) AppendHeader(dst []byte, op Opcode, length int, final bool) ([]byte, error) {
	if err := m.write.enter(op); err != nil {
		return dst, err
	}
	if m.write.zip {
		return dst, ErrMessageOpen // a compressed message has no frames that are not
	}
	return m.header(dst, m.write.frame(op, final), length), nil
}

// enter checks whether a data frame of a message of the type may come next.
func (w *writer) enter(op Opcode) error {
	switch {
	case w.closeSent:
		return ErrCloseSent // RFC 6455 5.5.1: no data frame after a Close frame
	case !op.isMessage():
		return ErrOpcode
	case w.begun && w.opcode != op:
		return ErrMessageOpen
	}
	return nil
}

// frame returns the first byte of the next data frame and moves on in the message.
func (w *writer) frame(op Opcode, final bool) byte {
	first := byte(op)
	if w.begun {
		first = byte(Continuation)
	} else if w.zip {
		first |= bitRSV1
	}
	w.opcode, w.begun = op, !final
	if final {
		first |= bitFin
		w.zip = false
	}
	return first
}

// AppendMessage appends a message in one frame. It borrows payload; the text of a Text message must be
// UTF-8, which is not checked.
func (m *Machine) AppendMessage(dst []byte, op Opcode, payload []byte) ([]byte, error) {
	if m.write.begun {
		return dst, ErrMessageOpen
	}
	return m.AppendFragment(dst, op, payload, true)
}

// AppendFragment appends the next frame of a message; final means that it is the last. Every call has the
// type of the message. Other messages cannot begin before it is complete, control frames may come
// between. It borrows payload.
func (m *Machine) AppendFragment(dst []byte, op Opcode, payload []byte, final bool) ([]byte, error) {
	w := &m.write
	if err := w.enter(op); err != nil {
		return dst, err
	}
	if w.deflate != nil && !w.begun {
		w.zip = !final || len(payload) >= w.deflate.threshold
	}
	if w.zip {
		zipped := w.deflate.compress(payload, final)
		if w.begun || !final || w.deflate.takeover || len(zipped) < len(payload) {
			payload = zipped
		} else {
			w.zip = false // the compressed form is longer, and the peer's window does not need it
		}
	}
	dst = m.AppendPayload(m.header(dst, w.frame(op, final), len(payload)), payload)
	if w.deflate != nil {
		w.deflate.release() // payload was copied
	}
	return dst, nil
}

// AppendPing appends a ping with at most 125 bytes of payload.
func (m *Machine) AppendPing(dst, payload []byte) ([]byte, error) {
	return m.control(dst, opPing, payload)
}

// AppendPong appends a pong: the answer to a ping, with its payload, or an unasked one.
func (m *Machine) AppendPong(dst, payload []byte) ([]byte, error) {
	return m.control(dst, opPong, payload)
}

// AppendClose appends the Close frame, after which nothing else can be appended. CloseNoStatus leaves
// code and reason out. A reason longer than 123 bytes is cut at a character (RFC 6455 5.5).
func (m *Machine) AppendClose(dst []byte, code CloseCode, reason string) ([]byte, error) {
	var p [maxControl]byte
	n := 0
	if err := checkClose(code, reason); err != nil {
		return dst, err
	}
	if code != CloseNoStatus {
		for len(reason) > maxControl-2 {
			_, size := utf8.DecodeLastRuneInString(reason)
			reason = reason[:len(reason)-size]
		}
		binary.BigEndian.PutUint16(p[:], uint16(code))
		n = 2 + copy(p[2:], reason)
	}
	dst, err := m.control(dst, opClose, p[:n])
	if err == nil {
		m.write.closeSent = true
	}
	return dst, err
}

// checkClose returns the error of a code or reason that a Close frame cannot have.
func checkClose(code CloseCode, reason string) error {
	switch {
	case code == CloseNoStatus:
		return nil
	case !code.Valid():
		return ErrCloseCode
	case !utf8.ValidString(reason):
		return ErrCloseReason
	}
	return nil
}

// CloseSent reports whether the Close frame was appended.
func (m *Machine) CloseSent() bool { return m.write.closeSent }

func (m *Machine) control(dst []byte, op Opcode, payload []byte) ([]byte, error) {
	switch {
	case m.write.closeSent:
		return dst, ErrCloseSent
	case len(payload) > maxControl:
		return dst, ErrControlSize
	}
	return m.AppendPayload(m.header(dst, bitFin|byte(op), len(payload)), payload), nil
}
