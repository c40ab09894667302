package kernbench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// Packets lie as a driver leaves them: one to each slot of 2 KiB, in frames of 64 KiB, so that
// larger ones of captures stay whole over several slots.
const (
	slot      = 2048
	frameSize = 65536
)

// ErrNoCaptures reports that no real captures were found.
var ErrNoCaptures = errors.New("no captures")

// load is the packets of one operation and size, as a driver hands them over: an arena and
// descriptors. The arena serves one load after the other.
type load struct {
	arena *ring.Arena
	desc  []packet.Desc // outside of the Go heap
	bytes int           // of packets
	text  int           // of their payloads, known once they have been looked at
}

// newLoad makes room for packets of slot bytes each.
func newLoad(packets int) (*load, error) {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: (packets*slot + frameSize - 1) / frameSize, FrameSize: frameSize})
	if err != nil {
		return nil, err
	}
	desc, err := offHeap(packets)
	if err != nil {
		return nil, errors.Join(err, arena.Close())
	}
	return &load{arena: arena, desc: desc[:0]}, nil
}

func (l *load) close() error {
	return errors.Join(freeDescs(l.desc), l.arena.Close())
}

// offHeap returns n descriptors of memory that a device may map.
func offHeap(n int) ([]packet.Desc, error) {
	n = max(n, 1)
	size := (n*packet.DescSize + unix.Getpagesize() - 1) &^ (unix.Getpagesize() - 1)
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %d descriptors: %w", n, err)
	}
	return unsafe.Slice((*packet.Desc)(unsafe.Pointer(&b[0])), size/packet.DescSize), nil
}

// freeDescs gives back what offHeap returned, of which d may be the beginning.
func freeDescs(d []packet.Desc) error {
	if cap(d) == 0 {
		return nil
	}
	return unix.Munmap(descBytes(d[:cap(d)]))
}

func descBytes(d []packet.Desc) []byte {
	if len(d) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&d[0])), len(d)*packet.DescSize)
}

// add takes room for a packet and returns it; nil where the load is full.
func (l *load) add(length int) []byte {
	off := 0
	if n := len(l.desc); n > 0 {
		last := &l.desc[n-1]
		off = (int(last.Off) + int(last.Len) + slot - 1) &^ (slot - 1)
	}
	if off/frameSize != (off+length-1)/frameSize {
		off = (off + frameSize - 1) &^ (frameSize - 1)
	}
	if len(l.desc) == cap(l.desc) || off+length > len(l.arena.Mem) {
		return nil
	}
	l.desc = append(l.desc, packet.Desc{Off: uint32(off), Len: uint16(length)})
	l.bytes += length
	return l.arena.Mem[off : off+length]
}

// begin empties the load.
func (l *load) begin() { l.desc, l.bytes, l.text = l.desc[:0], 0, 0 }

// made fills the load with at most n packets that are made for o, of which fill writes the payloads.
func (l *load) made(o *Op, size string, n int, f *traffic, fill func(i int, p []byte)) {
	l.begin()
	g, flows, lens := newGenerator(f.seed, o.Name+size), o.flows, lengths(size)
	if flows == 0 {
		flows = usualFlows
	}
	for i := range n {
		length := lens[i%len(lens)]
		t := f.flow(g.IntN(flows))
		if g.IntN(2) == 0 {
			t = t.back()
		}
		p := l.add(max(length, t.least()))
		if p == nil {
			return
		}
		fill(i, p)
		t.write(p)
	}
}

// captured fills the load with at most n packets of the captures in a folder: all files in the order
// of their names, from the start again until it is full.
func (l *load) captured(dir string, n int) error {
	files := captureFiles(dir)
	l.begin()
	for len(l.desc) < n {
		before := len(l.desc)
		for _, f := range files {
			if err := l.file(f, n); err != nil {
				return err
			}
		}
		if before == 0 && len(l.desc) == 0 {
			return noCaptures(dir)
		}
		if before == len(l.desc) {
			break // the arena is full
		}
	}
	return nil
}

// captureFiles returns the captures in a folder, by name; none of one that cannot be read.
func captureFiles(dir string) (files []string) {
	all, _ := os.ReadDir(dir) // sorted
	for _, f := range all {
		if !f.IsDir() && strings.Contains(f.Name(), ".pcap") {
			files = append(files, filepath.Join(dir, f.Name()))
		}
	}
	return files
}

// noCaptures says what to do where there are none.
func noCaptures(dir string) error {
	if dir == "" {
		return fmt.Errorf("%w: name a folder with --captures", ErrNoCaptures)
	}
	return fmt.Errorf("%w with packets in %s", ErrNoCaptures, dir)
}

// file adds the packets of a capture. Damage ends the file, not the run: captures are full of it.
func (l *load) file(path string, n int) error {
	r, err := capture.Open(path)
	if err != nil {
		return nil
	}
	defer r.Close()
	var made []byte
	for len(l.desc) < n {
		rec, err := r.Next()
		if err == io.EOF || errors.Is(err, capture.ErrTruncated) || errors.Is(err, capture.ErrCorrupt) || errors.Is(err, capture.ErrFormat) {
			return nil
		}
		if err != nil {
			return err
		}
		frame, err := capture.ToEthernet(rec.LinkType, rec.Data, made)
		if err != nil || len(frame) == 0 || len(frame) > 65535 {
			continue
		}
		if rec.LinkType != capture.LinkTypeEthernet {
			made = frame
		}
		p := l.add(len(frame))
		if p == nil {
			return nil
		}
		copy(p, frame)
	}
	return nil
}

// mean returns the mean length of a packet.
func (l *load) mean() float64 { return float64(l.bytes) / float64(max(1, len(l.desc))) }
