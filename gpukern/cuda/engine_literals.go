package cuda

import (
	"errors"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/packet"
)

// searches is the additional state of an engine with OpLiterals. A batch goes to the device once where that finds
// the texts by itself: the header pass and the search in one stream. With streams it goes twice: the host lists
// the texts when the header pass is done, batch after batch, and the search is launched then. A batch that
// has packets in several descriptors is listed and searched again; no other waits for that.
type searches struct {
	streams *gpukern.Streams // nil where packets are texts of their own
	of      []*Search        // of each flight
	view    packet.Batch
}

func newSearches(d *Device, cfg *Config) (*searches, error) {
	s := new(searches)
	if cfg.Ops&gpukern.OpFlow != 0 {
		s.streams = cfg.Streams
	}
	for range cfg.Depth {
		of, err := d.NewSearch(cfg.Search, gpukern.MatchLimit(cfg.MatchLimit))
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		if cfg.searchThreads > 0 {
			of.threads = cfg.searchThreads
		}
		s.of = append(s.of, of)
	}
	return s, nil
}

func (s *searches) close() error {
	var errs []error
	for _, of := range s.of {
		errs = append(errs, of.Close())
	}
	return errors.Join(errs...)
}

// list lists the texts of a flight that the header pass is done with.
func (s *searches) list(i int, fl *flight) {
	s.view = packet.Batch{Arena: fl.b.Arena, D: fl.d}
	s.of[i].List(&s.view, s.streams)
	fl.listed = true
}

// scan does on the CPU what a lost device was to find in a list. The streams know the batch already: it
// must not go into them again.
func (s *Search) scan(b *packet.Batch, set *literal.Set) {
	s.out.Begin(b, s.limit, set)
	if set == nil {
		return
	}
	var found []literal.Occurrence
	for _, t := range s.list.Texts {
		var tail []byte
		if t.Tail > 0 {
			slot := s.list.Tails[(t.Tail-1)*carryOverSize:][:carryOverSize]
			tail = slot[:slot[carryOverSize-1]]
		}
		from := int(t.Off) + int(t.From)
		found = set.Scan(tail, b.Arena.Mem[from:from+int(t.Len)], s.limit, found[:0])
		s.out.Write(int(t.Mark>>1), int(t.From), t.Mark&1 == 0, found)
	}
}
