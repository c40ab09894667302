package capture

import (
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
)

const (
	windowSize = 64 << 10 // bytes read at once from a stream
	maxWindow  = maxBlock + windowSize
)

// source is the unread rest of a capture. In memory it is complete, and slices of it are returned
// without a copy. From a stream it is a sliding window: slices are valid until the next peek.
type source struct {
	buf   []byte    // read but not consumed
	off   int64     // file offset of buf[0]
	r     io.Reader // nil in memory
	store []byte    // what buf is a part of
	err   error     // why r yields no more; io.EOF at its end
}

// peek returns the next n bytes, fewer only when the source ends or fails before.
func (s *source) peek(n int) []byte {
	if len(s.buf) < n {
		s.fill(n)
	}
	return s.buf[:min(n, len(s.buf))]
}

// skip consumes n bytes that peek has returned.
func (s *source) skip(n int) {
	s.buf = s.buf[n:]
	s.off += int64(n)
}

// discard consumes up to n bytes without holding them and returns how many there were.
func (s *source) discard(n int) int {
	done := 0
	for done < n {
		got := len(s.peek(min(n-done, windowSize)))
		if got == 0 {
			break
		}
		s.skip(got)
		done += got
	}
	return done
}

// fill moves the window to the front of its memory and reads until it holds n bytes. The memory
// grows only with bytes that were read, so a wrong length in a short file costs no memory.
func (s *source) fill(n int) {
	if s.r == nil {
		return
	}
	if s.store == nil {
		s.store = make([]byte, windowSize)
	}
	s.buf = s.store[:copy(s.store, s.buf)]
	for empty := 0; len(s.buf) < n && s.err == nil; {
		if len(s.buf) == len(s.store) {
			s.store = append(s.store, make([]byte, min(len(s.store), maxWindow-len(s.store)))...)
		}
		got, err := s.r.Read(s.store[len(s.buf):])
		s.buf = s.store[:len(s.buf)+got]
		s.err = readError(err)
		if got > 0 {
			empty = 0
		} else if empty++; empty == 100 && s.err == nil {
			s.err = io.ErrNoProgress
		}
	}
}

// Read implements io.Reader, for the decompressor that reads a source.
func (s *source) Read(p []byte) (int, error) {
	b := s.peek(1)
	if len(b) == 0 {
		if s.err == nil {
			return 0, io.EOF
		}
		return 0, s.err
	}
	n := copy(p, s.buf)
	s.skip(n)
	return n, nil
}

// readError maps the errors of a decompressor to those of the package.
func readError(err error) error {
	var bad flate.CorruptInputError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: compressed data ends early", ErrTruncated)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.As(err, &bad):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// order is the byte order of a file: that of the machine which wrote it.
type order bool

const (
	littleEndian order = false
	bigEndian    order = true
)

func (o order) u16(b []byte) uint16 {
	v := binary.LittleEndian.Uint16(b)
	if o == bigEndian {
		return bits.ReverseBytes16(v)
	}
	return v
}

func (o order) u32(b []byte) uint32 {
	v := binary.LittleEndian.Uint32(b)
	if o == bigEndian {
		return bits.ReverseBytes32(v)
	}
	return v
}

func (o order) u64(b []byte) uint64 {
	v := binary.LittleEndian.Uint64(b)
	if o == bigEndian {
		return bits.ReverseBytes64(v)
	}
	return v
}
