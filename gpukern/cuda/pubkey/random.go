package pubkey

import (
	"crypto/rand"
	"io"
)

// source gives one goroutine its share of randomness: from a reader as it is asked for, or from the system in large pieces, as
// a call of the system for each nonce would take longer than the rest of the nonce.
type source struct {
	reader io.Reader // nil is crypto/rand's
	piece  [4096]byte
	left   []byte
}

// read fills p, which is shorter than a piece.
func (s *source) read(p []byte) error {
	if s.reader != nil {
		_, err := io.ReadFull(s.reader, p)
		return err
	}
	if len(s.left) < len(p) {
		rand.Read(s.piece[:]) // never fails
		s.left = s.piece[:]
	}
	n := copy(p, s.left)
	clear(s.left[:n])
	s.left = s.left[n:]
	return nil
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if err := s.read(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// wipe overwrites what was not used.
func (s *source) wipe() { clear(s.piece[:]) }
