package replay

import (
	"errors"
	"fmt"
	"os"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/packet"
)

// Saved defines what was written to Config.Save or Config.Capture.
type Saved struct {
	Path    string `json:"path"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"` // as captured, with link headers
}

// saver writes packets to a capture, with the time and the size that they had in theirs. It is nil where
// none is written.
type saver struct {
	w     *capture.Writer
	saved Saved
	sizes []int // on the wire, of the packets between the source and the handler, in their order
	at    int   // in sizes, of the next packet of the handler
	buf   []byte
	err   error // the first of the output
}

// newSaver creates a capture, nil for "". It refuses a file that is to be replayed too, since creating it would empty it.
func newSaver(cfg *Config, save string) (*saver, error) {
	if save == "" {
		return nil, nil
	}
	if cfg.Laps > 1 {
		return nil, errors.New("replay: packets are written once, not in each of several laps")
	}
	if out, err := os.Stat(save); err == nil {
		for _, path := range cfg.Files {
			if in, err := os.Stat(path); err == nil && os.SameFile(in, out) {
				return nil, fmt.Errorf("%s is one of the files to replay: name another file to write", save)
			}
		}
	}
	w, err := capture.Create(save, capture.WriterConfig{
		Interfaces:  []capture.Interface{{LinkType: capture.LinkTypeEthernet, Name: "millrace"}},
		Application: "millrace replay",
	})
	if err != nil {
		return nil, err
	}
	return &saver{w: w, saved: Saved{Path: save}}, nil
}

// note is pcap.Config.OnPacket: it keeps the size on the wire until the packet comes to the handler.
func (s *saver) note(size int) {
	if s != nil {
		s.sizes = append(s.sizes, size)
	}
}

// packet takes the next packet of the handler, whose descriptors are d: it writes it if it is wanted.
func (s *saver) packet(b *packet.Batch, first int, d []packet.Desc, wanted bool) {
	if s == nil {
		return
	}
	size := s.sizes[s.at]
	if s.at++; s.at == len(s.sizes) {
		s.sizes, s.at = s.sizes[:0], 0
	}
	if !wanted || s.err != nil {
		return
	}
	data := b.Arena.Bytes(&d[0])
	if len(d) > 1 {
		s.buf = b.Arena.Gather(s.buf[:0], d, capture.MaxRecord)
		data = s.buf
	}
	rec := capture.Record{Data: data, Time: b.Time(first), Len: size}
	if s.err = s.w.Write(&rec); s.err == nil {
		s.saved.Packets++
		s.saved.Bytes += uint64(len(data))
	}
}

// begin forgets the packets of a file that were read and not handled: those beyond a limit.
func (s *saver) begin() {
	if s != nil {
		s.sizes, s.at = s.sizes[:0], 0
	}
}

// failed reports whether the output could not be written.
func (s *saver) failed() bool { return s != nil && s.err != nil }

// close ends the capture and returns what was written, nil where none is.
func (s *saver) close() (*Saved, error) {
	if s == nil {
		return nil, nil
	}
	return &s.saved, errors.Join(s.err, s.w.Close())
}
