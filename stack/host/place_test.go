package host

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// placing is a passer that places the payload of the large packets that it receives, as a driver does that has only their
// headers before.
type placing struct {
	passer
	placer pmd.Placer
	in     *packet.Batch // received and not passed on
	end    int           // 0 is host a, 1 host b
	w      **world
	lose   int // one large packet of so many is lost; 0 is none
	count  *placed
}

// placed is what the placers were asked for.
type placed struct{ direct, frames, later, large int }

func (p *placing) Info() pmd.Info {
	i := p.passer.Info()
	i.Placer = &p.placer
	return i
}

func (p *placing) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if p.in == nil {
		p.in = packet.NewBatch(b.Arena, 64)
	}
	if p.in.Len() == 0 {
		if _, err := p.passer.Rx(now, p.in); err != nil {
			return 0, err
		}
	}
	b.Base = int64(now)
	first, used := b.Len(), 0
	for ds := p.in.D; len(ds) > 0; ds = p.in.D[used:] {
		n := packet.Chain(ds)
		if n > b.Room() {
			break
		}
		how := pmd.PlaceInFrames
		if ds[0].Flags.Has(packet.FlagOffload) {
			if p.lost() {
				p.free(ds[:n])
				used += n
				continue
			}
			how = p.place(b, ds[:n])
		}
		if how == pmd.PlaceLater && b.Len() > 0 {
			p.count.later++
			break
		}
		if how != pmd.PlaceDirect {
			for _, d := range ds[:n] {
				b.Append(d)
			}
		}
		used += n
	}
	p.in.D = p.in.D[:copy(p.in.D, p.in.D[used:])]
	return b.Len() - first, nil
}

// lost reports whether the next large packet is lost.
func (p *placing) lost() bool {
	p.count.large++
	return p.lose > 0 && p.count.large%p.lose == 0
}

func (p *placing) free(ds []packet.Desc) {
	for _, d := range ds {
		(*p.w).hold[p.end].(*ring.Pool).Put(d.Off)
	}
}

// place asks for a packet, and moves its payload where it is told.
func (p *placing) place(b *packet.Batch, ds []packet.Desc) pmd.Placement {
	whole := b.Arena.Gather(nil, ds, 1<<16)
	how, headers, pieces := p.placer.Place(whole[:min(len(whole), 1000)], len(whole))
	if how != pmd.PlaceDirect {
		p.count.frames++
		return how
	}
	p.count.direct++
	rest := whole[headers:]
	for _, to := range pieces {
		rest = rest[copy(to, rest):]
	}
	if len(rest) > 0 {
		p.t.Errorf("no room for %d bytes", len(rest))
	}
	d := ds[0]
	d.Len = uint16(headers)
	d.Flags &^= packet.FlagMore
	b.Arena.SetPlaced(&d, len(whole)-headers)
	b.Append(d)
	p.free(ds[1:])
	return how
}

// Payload that is placed arrives as any other, with readers that wait and without, on a wire that loses packets too.
func TestPayloadIsPlaced(t *testing.T) {
	for _, c := range []struct{ readers, lose int }{{0, 0}, {1000, 0}, {64 << 10, 0}, {1 << 20, 0}, {0, 30}, {5000, 30}, {64 << 10, 20}} {
		var saw seen
		var count placed
		large := map[uint32]bool{}
		var w *world
		end := 0
		s := setting{frames: 2048, both: true}
		s.wrap = func(d pmd.Driver) pmd.Driver {
			p := &placing{passer: passer{Driver: d, t: t, large: large, seen: &saw}, count: &count, end: end, lose: c.lose, w: &w}
			end++
			return p
		}
		w = newWorld(t, s)
		w.readers = c.readers
		w.exchange(text(2<<20, 9), time.Minute)
		a, b := w.settle()
		if lost := a.TotalDropped() - unsolicited(&a) + b.TotalDropped() - unsolicited(&b); c.lose == 0 && lost != 0 {
			t.Errorf("%+v: %d lost: %+v %+v", c, lost, a, b)
		}
		if a.ReceivedBytes < 4<<20 || b.ReceivedBytes < 4<<20 {
			t.Errorf("%+v: %d and %d bytes counted", c, a.ReceivedBytes, b.ReceivedBytes)
		}
		for _, g := range []*Group{w.a, w.b} {
			if n := g.Hosts[0].TCP.Stats().Memory; n != 0 {
				t.Errorf("%+v: memory %d at the end", c, n)
			}
		}
		t.Logf("%+v: %+v", c, count)
		if count.direct < 50 || c.lose == 0 && count.frames > count.direct {
			t.Errorf("%+v: %+v: the test shows little", c, count)
		}
	}
}
