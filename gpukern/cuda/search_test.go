package cuda

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
)

// searchBed is a device with a batch, tables and a search.
type searchBed struct {
	t      *testing.T
	b      *packet.Batch
	runner *runner
	search *Search
	header HeaderPass
	set    LiteralSet
	of     *literal.Set
}

func newSearchBed(t *testing.T, d *Device, b *packet.Batch, all kernref.Patterns, limit int) *searchBed {
	t.Helper()
	set, err := literal.Compile(all)
	if err != nil {
		t.Fatal(err)
	}
	tables := gpukern.Tables{Literals: set}
	image := tables.Image(&gpukern.DefaultHashKey)
	table := must(d.Upload(image))(t)
	region := must(d.Register(b.Arena.Mem))(t)
	s := &searchBed{
		t: t, b: b, runner: newRunner(t, d, region, 64), search: must(d.NewSearch(len(b.D), limit))(t),
		header: HeaderPass{Ops: gpukern.OpParse, Tables: table.Ptr}, set: LiteralSetOf(image, table.Ptr), of: set,
	}
	s.search.threads = 64
	t.Cleanup(func() {
		if err := errors.Join(s.runner.close(), s.search.Close(), region.Close(), table.Close()); err != nil {
			t.Error(err)
		}
	})
	s.header.Texts = s.search
	return s
}

// run has the device do what put says.
func (s *searchBed) run(put func(r *Recorder, w Work) error) {
	s.t.Helper()
	if err := s.runner.run(s.b, put); err != nil {
		s.t.Fatal(err)
	}
}

// searched returns the matches of the batch, by texts that the device finds itself.
func (s *searchBed) direct() []packet.Match {
	s.t.Helper()
	s.run(func(r *Recorder, w Work) error {
		return errors.Join(s.header.Put(r, w), s.search.Put(r, w, s.set))
	})
	s.search.WriteMatches(s.b, s.of)
	return s.b.Matches
}

// listed returns the matches of the batch, by a list that is made between two launches.
func (s *searchBed) listed(streams *gpukern.Streams) []packet.Match {
	s.t.Helper()
	s.run(s.header.Put)
	s.search.List(s.b, streams)
	s.run(func(r *Recorder, w Work) error { return s.search.Put(r, w, s.set) })
	s.search.WriteMatches(s.b, s.of)
	return s.b.Matches
}

func TestSearch(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		g := newMaker(4)
		all := g.patterns(30, 3, 12)
		var packets [][][]byte
		for range 40 {
			packets = append(packets, [][]byte{g.packet(all)})
		}
		b := g.batchOf(t, packets...)
		s := newSearchBed(t, d, b, all, 3)
		ref := &packet.Batch{Arena: b.Arena, D: slices.Clone(b.D)}
		kernref.Reference(ref, gpukern.OpLiterals, kernref.Lists{Literals: all, MatchLimit: 3})
		for range 2 {
			if d := cmp.Diff(s.direct(), ref.Matches); d != "" {
				t.Fatalf("found by descriptors -, reference +:\n%s", d)
			}
			if d := cmp.Diff(s.listed(nil), ref.Matches); d != "" {
				t.Fatalf("found by a list -, reference +:\n%s", d)
			}
		}
	})
}

func TestSearchAlongStreams(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		all := kernref.Patterns{{Bytes: []byte("abcdefgh"), Rule: 5}}
		g := newMaker(4)
		b := g.batchOf(t, [][]byte{udp(false, []byte("efghabcd"))}, [][]byte{udp(false, nil)}, [][]byte{udp(false, []byte("ef"))})
		s := newSearchBed(t, d, b, all, 16)
		streams, err := gpukern.NewStreams(1)
		if err != nil {
			t.Fatal(err)
		}
		defer streams.Close()
		for i := range b.D {
			b.D[i].Flow = 2
		}
		var want []packet.Match // "efghabcd", "", "ef": nothing
		for range 2 {
			if d := cmp.Diff(s.listed(streams), want, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("found -, want +:\n%s", d)
			}
			copy(b.Bytes(0)[42:], "ghabcdef") // goes on from "...cd" + "ef"
			want = []packet.Match{{D: 0, Rule: 5, End: 44}}
		}
	})
}

func TestASearchOfNoTextsFindsNothing(t *testing.T) {
	d, _ := openFake(t)
	g := newMaker(1)
	all := kernref.Patterns{{Bytes: []byte("abc"), Rule: 1}}
	b := g.batchOf(t, [][]byte{udp(false, []byte("abc"))})
	s := newSearchBed(t, d, b, all, 16)
	if m := s.direct(); len(m) != 1 {
		t.Fatalf("found %v", m)
	}
	copy(b.Bytes(0)[12:], []byte{0, 0}) // no IP
	if m := s.listed(nil); len(m) != 0 {
		t.Fatalf("a batch without texts has %v", m)
	}
}

func TestASearchRefusesWhatItIsNotFor(t *testing.T) {
	d, _ := openFake(t)
	for _, c := range [][2]int{{0, 16}, {1, 0}, {1, gpukern.MaxMatchLimit + 1}} {
		if s, err := d.NewSearch(c[0], c[1]); err == nil {
			t.Errorf("%v: %v", c, errors.Join(s.Close(), errors.New("no error")))
		}
	}
	g := newMaker(1)
	b := g.batchOf(t, [][]byte{udp(false, nil)}, [][]byte{udp(false, nil)})
	s := newSearchBed(t, d, b, kernref.Patterns{{Bytes: []byte("abc"), Rule: 1}}, 16)
	s.search.most = 1
	for _, put := range []func(r *Recorder, w Work) error{s.header.Put, func(r *Recorder, w Work) error { return s.search.Put(r, w, s.set) }} {
		if err := s.runner.run(b, put); !errors.Is(err, ErrNoRoom) {
			t.Errorf("a batch that is too large: %v", err)
		}
	}
}
