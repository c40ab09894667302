package pcap

import (
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"

	"github.com/millrace/millrace/capture"
)

const ethernetLen = len(capture.EthernetHeader{})

// sourcePacket is one packet on its way from a file to frames: a synthesized Ethernet header for records of other link
// types, and the bytes of the file after it. The two are joined only in the frame, which saves a copy of each packet.
type sourcePacket struct {
	head  capture.EthernetHeader
	nhead int // bytes of head that count: all or none
	data  []byte
	time  int64 // of capture, ns since the Unix epoch

	original int // size before the capturing program cut the packet; only a fileSource knows it
}

// size returns the length of the packet in bytes as Rx delivers it, with a synthesized header.
func (k *sourcePacket) size() int { return k.nhead + len(k.data) }

// copyTo fills dst with the packet's bytes from offset from on. A synthesized header may end within dst, and the bytes of
// the file follow it there.
func (k *sourcePacket) copyTo(dst []byte, from int) {
	if from < k.nhead {
		n := copy(dst, k.head[from:k.nhead])
		copy(dst[n:], k.data)
		return
	}
	copy(dst, k.data[from-k.nhead:])
}

// source yields the packets of one lap. fileSource reads them from files, memorySource from memory; Rx does not know which.
type source interface {
	// next stores the next packet, whose bytes hold until the call after: io.EOF after the last.
	next(k *sourcePacket) error
	// rewind starts the next lap.
	rewind() error
	close() error
}

// fileSource reads files, one after the other, in bounded memory: a packet borrows the reader's buffer until the next.
type fileSource struct {
	paths   []string
	at      int // of the file that r reads
	r       *capture.Reader
	count   *recordCounters
	invalid *atomic.Uint64
	keep    func(*capture.Record) bool
	fill    bool // lengths that are 0
}

// rewind starts the next lap: files are opened again, so they may grow between laps. One that has been removed ends the
// replay with an error.
func (f *fileSource) rewind() error {
	f.at = 0
	return f.open()
}

// open opens file at, if there is one.
func (f *fileSource) open() (err error) {
	if err := f.close(); err != nil || f.at == len(f.paths) {
		return err
	}
	f.r, err = capture.Open(f.paths[f.at])
	return err
}

// close closes the file that is open, if any. It may be called again: Close of the driver and the end of a lap both do.
func (f *fileSource) close() error {
	if f.r == nil {
		return nil
	}
	err := f.r.Close()
	f.r = nil
	return err
}

// next reads records until one is a packet, across files. Damage in one file ends the lap: the files after it would hide
// that packets are missing.
func (f *fileSource) next(k *sourcePacket) error {
	for f.r != nil {
		rec, err := f.r.Next()
		if err == nil {
			if f.convert(rec, k) {
				return nil
			}
			continue
		}
		if err != io.EOF {
			return err
		}
		f.at++
		if err := f.open(); err != nil {
			return err
		}
	}
	return io.EOF
}

// convert makes an Ethernet packet of a record; false means that it cannot be one, and is counted. The engine parses
// Ethernet only, so a header is synthesized for the other link types that carry IP. A record that the capturing program
// has cut is received as it is: its headers still say the original length, and the engine reports it as truncated.
func (f *fileSource) convert(rec *capture.Record, k *sourcePacket) bool {
	f.count.records.Add(1)
	if rec.Truncated() {
		f.count.truncated.Add(1)
	}
	if f.keep != nil && !f.keep(rec) {
		f.count.filtered.Add(1)
		return false
	}
	k.data, k.time, k.nhead, k.original = rec.Data, rec.Time, 0, max(rec.Len, len(rec.Data))
	if len(rec.Data) == 0 {
		return f.reject(&f.count.empty)
	}
	// Ethernet is the usual case and needs no header of its own.
	if rec.LinkType == capture.LinkTypeEthernet {
		if f.fill && len(k.data) >= ethernetLen+6 {
			f.fillLength(binary.BigEndian.Uint16(k.data[ethernetLen-2:]), k.data[ethernetLen:], k.original-ethernetLen)
		}
		return true
	}
	head, skip, err := capture.Replace(rec.LinkType, rec.Data)
	switch {
	case errors.Is(err, capture.ErrLinkType):
		return f.reject(&f.count.unsupported)
	case err != nil:
		return f.reject(&f.count.notIP)
	}
	k.head, k.nhead, k.data = head, len(head), rec.Data[skip:]
	k.original += len(head) - skip
	if f.fill && len(k.data) >= 6 {
		f.fillLength(binary.BigEndian.Uint16(head[ethernetLen-2:]), k.data, k.original-ethernetLen)
	}
	return true
}

// fillLength calls capture.FillLength unless the packet is one of those that most are.
func (f *fileSource) fillLength(ether uint16, p []byte, wire int) {
	if ether == 0x0800 && p[2]|p[3] != 0 || ether == 0x86DD && p[4]|p[5] != 0 {
		return
	}
	capture.FillLength(ether, p, wire)
}

// reject counts a record that is no Ethernet packet under its reason, and as RxInvalid, whose sum of reasons it is.
func (f *fileSource) reject(why *atomic.Uint64) bool {
	why.Add(1)
	f.invalid.Add(1)
	return false
}

// memorySource holds the packets of a lap in memory: their bytes one after the other, so that the CPU's prefetcher follows,
// and an index. Neither has pointers, so the garbage collector does not scan a large capture.
type memorySource struct {
	bytes []byte
	index []indexEntry
	at    int
	err   error // what follows the last packet: io.EOF, or the damage of a file
}

// indexEntry is a packet in memorySource.bytes.
type indexEntry struct {
	off  int
	size int32
	time int64
}

// preload reads all of f, and closes it. An error that ends the reading is kept: Rx returns it after the packets before it,
// as it does in stream mode.
func preload(f *fileSource) (*memorySource, error) {
	m := &memorySource{}
	var k sourcePacket
	for {
		if m.err = f.next(&k); m.err != nil {
			return m, f.close()
		}
		m.index = append(m.index, indexEntry{len(m.bytes), int32(k.size()), k.time})
		m.bytes = append(m.bytes, k.head[:k.nhead]...)
		m.bytes = append(m.bytes, k.data...)
	}
}

// next returns the packets of the index, then the error that ended reading.
func (m *memorySource) next(k *sourcePacket) error {
	if m.at == len(m.index) {
		return m.err
	}
	e := &m.index[m.at]
	m.at++
	k.data, k.time = m.bytes[e.off:e.off+int(e.size)], e.time
	return nil
}

// rewind starts the next lap; it cannot fail.
func (m *memorySource) rewind() error {
	m.at = 0
	return nil
}

// close has nothing to close: preload has closed the files.
func (m *memorySource) close() error { return nil }
