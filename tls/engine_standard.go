package tls

import (
	"crypto/tls"
	"io"
)

// standardRecords is crypto/tls's record layer, driven without a goroutine: when Read wants input that has
// not arrived, the transport returns a temporary error, and the next Read goes on where it was.
// TestCryptoTLSResumesReads fails when a release of Go changes that.
type standardRecords struct {
	*transport
	conn  *tls.Conn
	plain *[]byte // what the last event's data lies in
}

// next returns the event of the next record that has one.
func (s *standardRecords) next(in []byte) (Event, int, error) {
	s.release()
	if len(in) == 0 {
		return Event{}, 0, nil
	}
	s.in = in
	s.plain = takeBuffer(largeBuffer)
	buf := (*s.plain)[:maxPlaintext]
	got, err := s.conn.Read(buf)
	n := len(in) - len(s.in)
	s.in = nil
	if got > 0 {
		return Event{Kind: Data, Data: buf[:got]}, n, nil // the error, if any, comes again
	}
	s.release()
	switch err {
	case errNoInput:
		return Event{}, n, nil
	case io.EOF:
		return Event{Kind: PeerClosed}, n, nil
	}
	return Event{}, n, err
}

func (s *standardRecords) release() {
	if s.plain != nil {
		giveBuffer(s.plain)
		s.plain = nil
	}
}

// errNoInput reports that the input ends here for now. crypto/tls remembers every error of Read but temporary
// ones.
var errNoInput error = noInput{}

type noInput struct{}

func (noInput) Error() string   { return "tls: no input" }
func (noInput) Timeout() bool   { return false }
func (noInput) Temporary() bool { return true }
