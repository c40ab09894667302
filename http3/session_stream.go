package http3

import (
	"errors"
	"io"

	"github.com/millrace/millrace/quic"
)

// SessionStream is a stream of a session. One goroutine may read beside one that writes.
type SessionStream struct {
	session *Session
	receive receiver // nil of a unidirectional stream that was opened here
	send    sender   // nil of one that the peer opened
	pre     []byte   // was read with the beginning
	fin     bool     // nothing follows pre
}

// Read reads bytes. A reset by the peer is a *SessionError with its code.
func (st *SessionStream) Read(p []byte) (int, error) {
	if st.receive == nil {
		return 0, errors.New("http3: read of a stream that only sends")
	}
	if len(st.pre) > 0 {
		n := copy(p, st.pre)
		st.pre = st.pre[n:]
		return n, st.session.received(n)
	}
	if st.fin {
		return 0, io.EOF
	}
	n, err := st.receive.Read(p)
	if violation := st.session.received(n); violation != nil {
		return n, violation
	}
	if err = sessionError(err); isReset(err) {
		st.session.lost()
	}
	return n, err
}

// Write sends bytes. It waits until the peer has given the session credit for them, and borrows p.
func (st *SessionStream) Write(p []byte) (int, error) {
	if st.send == nil {
		return 0, errors.New("http3: write to a stream that only receives")
	}
	for sent := 0; ; {
		k, err := st.session.reserve(st.send.Context(), len(p)-sent)
		if err != nil {
			return sent, sessionError(err)
		}
		n, err := st.send.Write(p[sent : sent+k])
		if sent += n; err != nil || sent == len(p) {
			return sent, sessionError(err)
		}
	}
}

// Close ends the sending.
func (st *SessionStream) Close() error {
	st.session.remove(st)
	if st.send == nil {
		return nil
	}
	return converted(st.send.Close())
}

// CancelRead asks the peer to send no more, with a code of the application.
func (st *SessionStream) CancelRead(code uint32) {
	if st.receive != nil {
		st.receive.CancelRead(WireCode(code))
		st.session.lost()
	}
}

// CancelWrite resets the sending, with a code of the application.
func (st *SessionStream) CancelWrite(code uint32) {
	if st.send != nil {
		st.send.CancelWrite(WireCode(code))
	}
}

func (st *SessionStream) abort(code ErrorCode) {
	if st.receive != nil {
		st.receive.CancelRead(uint64(code))
	}
	if st.send != nil {
		st.send.CancelWrite(uint64(code))
	}
}

// The codes of applications lie in a range of those of HTTP/3, which leaves out the codes 0x1f * N + 0x21
// that are reserved (draft 4.4, RFC 9114 8.1).
const firstSessionCode, lastSessionCode = 0x52e4a40fa8db, 0x52e5ac983162

// WireCode returns the code on the wire for one of an application.
func WireCode(code uint32) uint64 { return firstSessionCode + uint64(code) + uint64(code)/0x1e }

// ApplicationCode returns the code of the application for one on the wire. ok is false for a code that is none of an application.
func ApplicationCode(wire uint64) (code uint32, ok bool) {
	if wire < firstSessionCode || wire > lastSessionCode || (wire-0x21)%0x1f == 0 {
		return 0, false
	}
	n := wire - firstSessionCode
	return uint32(n - n/0x1f), true
}

// sessionError returns the error of a reset with a code of the application.
func sessionError(err error) error {
	var se *quic.StreamError
	if errors.As(err, &se) {
		if code, ok := ApplicationCode(se.Code); ok {
			return &SessionError{Code: code, Text: "stream reset", Remote: se.Remote}
		}
	}
	return converted(err)
}
