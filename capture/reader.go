package capture

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

// decoder reads the records of one format into r.rec.
type decoder interface {
	next(r *Reader) error
}

// Reader reads the records of a capture in order. It belongs to one goroutine.
type Reader struct {
	src    source
	dec    decoder
	format Format
	path   string
	close  func() error
	rec    Record
	ifs    []Interface
	n      int64 // records delivered
	err    error // io.EOF or the damage: final
}

// Open opens the capture at path, pcap, pcapng or snoop, compressed by gzip or not: the content decides,
// not the name. "-" is standard input. The caller closes the reader.
//
// The file is read, not mapped: a mapped file that another program shortens would kill the process.
func Open(path string) (*Reader, error) {
	f, shut := os.Stdin, func() error { return nil }
	if path != "-" {
		var err error
		if f, err = os.Open(path); err != nil {
			return nil, err
		}
		shut = f.Close
	}
	r, err := newReader(source{r: f}, path)
	if err != nil {
		shut()
		return nil, err
	}
	r.close = shut
	return r, nil
}

// NewReader reads a capture from a stream, compressed by gzip or not. It reads ahead.
func NewReader(in io.Reader) (*Reader, error) { return newReader(source{r: in}, "") }

// NewMemory reads a capture that is in memory already. Records are slices of b, so they stay valid
// as long as b does; a gzip file is decompressed on the way, and there they do not.
func NewMemory(b []byte) (*Reader, error) { return newReader(source{buf: b}, "") }

func newReader(src source, path string) (*Reader, error) {
	r := &Reader{src: src, path: path}
	if m := r.src.peek(2); len(m) == 2 && m[0] == 0x1f && m[1] == 0x8b {
		packed := r.src
		gz, err := gzip.NewReader(&packed)
		if err != nil {
			return nil, r.fail(0, readError(err), "gzip header")
		}
		r.src = source{r: gz}
	}
	if err := r.detect(); err != nil {
		return nil, err
	}
	return r, nil
}

// detect reads the magic number, and with it the file's header.
func (r *Reader) detect() error {
	m := r.src.peek(4)
	if len(m) < 4 {
		return r.short(0, "magic number of 4 bytes wanted, %d there", len(m))
	}
	magic := littleEndian.u32(m)
	if magic == blockSection {
		ng := &pcapng{}
		r.dec, r.format = ng, FormatPcapng
		return ng.section(r)
	}
	if magic == magicSnoop {
		s := &snoop{}
		r.dec, r.format = s, FormatSnoop
		return s.header(r)
	}
	p, ok := newPcap(magic)
	if !ok {
		return r.fail(0, ErrFormat, "magic number % x is neither pcap, pcapng nor snoop%s", m, packer(magic))
	}
	r.dec, r.format = p, FormatPcap
	return p.header(r)
}

// packer returns the compression of a magic number (read little-endian) and how to decompress it.
func packer(magic uint32) string {
	name := ""
	switch {
	case magic == 0xFD2FB528:
		name = "zstd"
	case magic == 0x587A37FD:
		name = "xz"
	case magic&0xFFFFFF == 0x685A42:
		name = "bzip2"
	case magic == 0x184D2204:
		name = "lz4"
	default:
		return ""
	}
	return fmt.Sprintf("; it is compressed by %s: pipe it through %s -dc and read \"-\"", name, name)
}

// Next returns the next record: io.EOF after the last, an *Error where the file is damaged, and
// that again from then on. The record and its bytes are the reader's: they hold until the next
// call, except that the bytes of a NewMemory reader stay.
func (r *Reader) Next() (*Record, error) {
	if r.err != nil {
		return nil, r.err
	}
	if err := r.dec.next(r); err != nil {
		r.err = err
		return nil, err
	}
	r.n++
	return &r.rec, nil
}

// Interfaces borrows the interfaces seen so far: one for pcap; for pcapng those of all sections up
// to the record read last.
func (r *Reader) Interfaces() []Interface { return r.ifs }

// Format returns what the file is.
func (r *Reader) Format() Format { return r.format }

// Records returns the number of records that Next has returned.
func (r *Reader) Records() int64 { return r.n }

// Offset returns the file offset behind what was read so far, in decompressed bytes.
func (r *Reader) Offset() int64 { return r.src.off }

// Close closes what Open opened. It may be called twice.
func (r *Reader) Close() error {
	shut := r.close
	r.close = nil
	if r.err == nil {
		r.err = ErrClosed
	}
	if shut == nil {
		return nil
	}
	return shut()
}

// fail returns the error of damage in the record or block that begins at offset at.
func (r *Reader) fail(at int64, err error, format string, args ...any) error {
	record := r.n + 1
	if r.dec == nil || len(r.ifs) == 0 && r.n == 0 {
		record = 0
	}
	return &Error{Path: r.path, Record: record, Offset: at, What: fmt.Sprintf(format, args...), Err: err}
}

// short returns the error of missing bytes: the file ends, or reading it failed.
func (r *Reader) short(at int64, format string, args ...any) error {
	if err := r.src.err; err != nil && !errors.Is(err, io.EOF) {
		return r.fail(at, err, format, args...)
	}
	return r.fail(at, ErrTruncated, format, args...)
}

// end returns io.EOF at the clean end of a file, and otherwise the error that ended reading.
func (r *Reader) end() error {
	if err := r.src.err; err != nil && !errors.Is(err, io.EOF) {
		return r.fail(r.src.off, err, "next record")
	}
	return io.EOF
}
