package encode

import (
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Levels and windows. They are for content that is compressed once for each response: the next level costs more than half of the time
// again and saves 2 to 3 % of the bytes. The windows bound the memory of an encoder: that of br and zstd is 256 KiB.
const (
	gzipLevel    = 4
	brotliLevel  = 4
	brotliWindow = 18 // bits
	zstdLevel    = zstd.SpeedFastest
	zstdWindow   = 256 << 10
)

// writer is the interface that the libraries have in common.
type writer interface {
	io.WriteCloser
	Flush() error
	Reset(w io.Writer)
}

// Encoder compresses the content of one response at a time.
type Encoder struct {
	coding string
	w      writer
	out    sink
	open   bool // content is behind the last Flush
}

// sink collects what an encoder writes.
type sink struct{ b []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), nil
}

// newEncoder returns an encoder for a coding, nil for one that there is none for.
func newEncoder(coding string) *Encoder {
	e := &Encoder{coding: coding}
	switch coding {
	case "gzip":
		e.w, _ = gzip.NewWriterLevel(&e.out, gzipLevel) // the level is valid
	case "br":
		e.w = brotli.NewWriterOptions(&e.out, brotli.WriterOptions{Quality: brotliLevel, LGWin: brotliWindow})
	case "zstd":
		z, err := zstd.NewWriter(&e.out, zstd.WithEncoderLevel(zstdLevel), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(zstdWindow),
			zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true))
		if err != nil { // of wrong options
			panic(err)
		}
		e.w = z
	default:
		return nil
	}
	return e
}

// Coding returns the name of the coding.
func (e *Encoder) Coding() string { return e.coding }

// Append compresses p, and appends what comes out of it to dst: nothing, where the encoder keeps it all. Memory cannot fail, so that no
// call returns an error.
func (e *Encoder) Append(dst, p []byte) []byte {
	e.open = true
	return e.collect(dst, func() error { _, err := e.w.Write(p); return err })
}

// Flush appends what the encoder keeps: the client can then read all that Append got.
func (e *Encoder) Flush(dst []byte) []byte {
	if !e.open {
		return dst
	}
	e.open = false
	return e.collect(dst, e.w.Flush)
}

// End appends the end of the content.
func (e *Encoder) End(dst []byte) []byte { return e.collect(dst, e.w.Close) }

// collect runs a step of the encoder, which writes to dst.
func (e *Encoder) collect(dst []byte, step func() error) []byte {
	e.out.b = dst
	err := step()
	dst, e.out.b = e.out.b, nil
	if err != nil { // a fault of the library: what follows would be garbage to the client
		panic("encode: " + e.coding + ": " + err.Error())
	}
	return dst
}

// Pool has the encoders of a worker. It is not safe for concurrent use.
type Pool struct {
	Most int // in use at once; 0 is none

	used int
	free map[string][]*Encoder
}

// keep bounds the encoders of a coding that wait for the next response.
const keep = 4

// Get returns an encoder, nil where as many are in use as may.
func (p *Pool) Get(coding string) *Encoder {
	if p.used >= p.Most {
		return nil
	}
	var e *Encoder
	if list := p.free[coding]; len(list) > 0 {
		e = list[len(list)-1]
		p.free[coding] = list[:len(list)-1]
		e.w.Reset(&e.out)
	} else if e = newEncoder(coding); e == nil {
		return nil
	}
	e.open = false
	p.used++
	return e
}

// Put takes an encoder back, also one whose content has not ended.
func (p *Pool) Put(e *Encoder) {
	p.used--
	if p.free == nil {
		p.free = map[string][]*Encoder{}
	}
	if list := p.free[e.coding]; len(list) < keep {
		p.free[e.coding] = append(list, e)
	}
}

// Used returns how many encoders are in use.
func (p *Pool) Used() int { return p.used }
