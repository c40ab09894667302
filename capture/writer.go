package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const flushAt = 128 << 10 // bytes buffered before a write

// WriterConfig describes a capture to write. The zero value, with an interface, is a pcapng.
type WriterConfig struct {
	Format      Format      // FormatAuto: see Create and NewWriter
	Interfaces  []Interface // at least one; exactly one for pcap. A Record's Interface is the index
	SnapLen     int         // bytes kept of each packet; 0 is MaxRecord, the most
	Hardware    string      // for the section header: the machine
	OS          string      // for the section header: its operating system
	Application string      // for the section header: the writing program
	Comment     string      // for the section header
}

// encoder writes the blocks of one format to the end of w.buf.
type encoder interface {
	header(w *Writer) error
	record(w *Writer, r *Record, data []byte) error
	trailer(w *Writer)
}

// Writer writes a capture. It belongs to one goroutine, buffers up to 128 KiB, and allocates
// nothing per record.
type Writer struct {
	out     io.Writer
	close   func() error
	enc     encoder
	cfg     WriterConfig
	format  Format
	buf     []byte
	written int64
	err     error // of the first failed write: final
}

// Create creates or truncates the file at path; "-" is standard output. Where the format is not given,
// the names .pcap, .cap and .dmp mean pcap and all others pcapng. The caller closes the writer.
func Create(path string, cfg WriterConfig) (*Writer, error) {
	if cfg.Format == FormatAuto {
		cfg.Format = formatOf(path)
	}
	if path == "-" {
		return NewWriter(os.Stdout, cfg)
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	w, err := NewWriter(f, cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	w.close = f.Close
	return w, nil
}

func formatOf(path string) Format {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".pcap", ".cap", ".dmp":
		return FormatPcap
	}
	return FormatPcapng
}

// NewWriter starts a capture on out. Close writes its end and leaves out open.
func NewWriter(out io.Writer, cfg WriterConfig) (*Writer, error) {
	if cfg.SnapLen <= 0 || cfg.SnapLen > MaxRecord {
		cfg.SnapLen = MaxRecord
	}
	if cfg.Format > FormatPcapng {
		return nil, fmt.Errorf("%w: %v is read, not written", ErrFormat, cfg.Format)
	}
	cfg.Interfaces = slices.Clone(cfg.Interfaces) // SetCounters writes to them
	w := &Writer{out: out, cfg: cfg, format: FormatPcapng, buf: make([]byte, 0, flushAt+4096)}
	if cfg.Format == FormatPcap {
		w.enc, w.format = pcapEncoder{}, FormatPcap
	} else {
		w.enc = &ngEncoder{}
	}
	if err := w.enc.header(w); err != nil {
		return nil, err
	}
	return w, nil
}

// Format returns the format that is written.
func (w *Writer) Format() Format { return w.format }

// Written returns the bytes of the capture so far, those buffered included.
func (w *Writer) Written() int64 { return w.written + int64(len(w.buf)) }

// Write appends one record; it borrows it. Data is cut to the snap length. Len counts where it is
// larger than Data; smaller, it is taken for not set. ErrRange reports that the format cannot hold the
// record: nothing is written then, and the writer goes on. Any other error is of the output; it
// repeats.
func (w *Writer) Write(r *Record) error {
	if w.err != nil {
		return w.err
	}
	if r.Interface < 0 || r.Interface >= len(w.cfg.Interfaces) {
		return fmt.Errorf("%w: interface %d of %d", ErrRange, r.Interface, len(w.cfg.Interfaces))
	}
	if r.Len > math.MaxUint32 {
		return fmt.Errorf("%w: packet of %d bytes", ErrRange, r.Len)
	}
	if err := w.enc.record(w, r, r.Data[:min(len(r.Data), w.cfg.SnapLen)]); err != nil {
		return err
	}
	if len(w.buf) >= flushAt {
		return w.Flush()
	}
	return nil
}

// wireLen returns the length on the wire that is written for r.
func wireLen(r *Record) uint32 { return uint32(max(r.Len, len(r.Data))) }

// Flush writes the buffered bytes.
func (w *Writer) Flush() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	n, err := w.out.Write(w.buf)
	w.written += int64(n)
	w.buf = w.buf[:0]
	if err != nil {
		w.err = fmt.Errorf("write capture: %w", err)
	}
	return w.err
}

// SetCounters keeps the statistics of an interface, which a pcapng gets on Close.
func (w *Writer) SetCounters(iface int, c Counters) error {
	if iface < 0 || iface >= len(w.cfg.Interfaces) {
		return fmt.Errorf("%w: interface %d of %d", ErrRange, iface, len(w.cfg.Interfaces))
	}
	w.cfg.Interfaces[iface].Counters = &c
	return nil
}

// Close writes the end of the capture, flushes, and closes the file that Create made. A second call
// returns ErrClosed.
func (w *Writer) Close() error {
	if errors.Is(w.err, ErrClosed) {
		return w.err
	}
	if w.err == nil {
		w.enc.trailer(w)
	}
	err := w.Flush()
	w.err = ErrClosed
	if w.close != nil {
		err = errors.Join(err, w.close())
	}
	return err
}

// pcapEncoder writes classic pcap: little-endian, nanoseconds.
type pcapEncoder struct{}

func (pcapEncoder) header(w *Writer) error {
	if n := len(w.cfg.Interfaces); n != 1 {
		return fmt.Errorf("%w: pcap has exactly one interface, not %d; write pcapng", ErrRange, n)
	}
	le := binary.LittleEndian
	b := le.AppendUint32(w.buf, magicNano)
	b = le.AppendUint32(b, 2|4<<16) // version 2.4
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, uint32(w.cfg.SnapLen))
	w.buf = le.AppendUint32(b, uint32(w.cfg.Interfaces[0].LinkType))
	return nil
}

func (pcapEncoder) record(w *Writer, r *Record, data []byte) error {
	sec, ns := r.Time/second, r.Time%second
	if r.Time < 0 || sec > math.MaxUint32 {
		return fmt.Errorf("%w: time %d ns is not from 1970 to 2106", ErrRange, r.Time)
	}
	le := binary.LittleEndian
	b := le.AppendUint32(w.buf, uint32(sec))
	b = le.AppendUint32(b, uint32(ns))
	b = le.AppendUint32(b, uint32(len(data)))
	b = le.AppendUint32(b, wireLen(r))
	w.buf = append(b, data...)
	return nil
}

func (pcapEncoder) trailer(*Writer) {}
