package ed25519

import (
	"sync"

	"github.com/millrace/millrace/gpukern/field25519"
)

// windows is the number of windows of four bits of a scalar.
const windows = 64

// table has the multiples of a point: entry e of window w is e * 16^w times it. It takes 123 KB.
type table []uint64

func (t table) window(w int) []uint64 { return t[w*field25519.WindowWords:][:field25519.WindowWords] }

// generatorOf returns the table of the generator, of a form.
var generatorOf = func() func(f *field25519.Form) table {
	tables := map[*field25519.Form]func() table{}
	for _, f := range field25519.Forms() {
		tables[f] = sync.OnceValue(func() table {
			b := newTableBuilder(f)
			f.SetAll(b.p.x, &generatorX)
			f.SetAll(b.p.y, &generatorY)
			copy(b.p.z, b.c.one)
			f.Multiply(b.p.t, b.p.x, b.p.y)
			return b.build()
		})
	}
	return func(f *field25519.Form) table { return tables[f]() }
}()

// tableBuilder has the memory for the making of a table of p, which is the same in all lanes, and public.
type tableBuilder struct {
	arithmetic
	powers   *field25519.Powers
	p, sum   point
	starts   []point // entries 1 of a window to a lane
	entry    []field25519.Row
	made     []point // the entries of the lanes' windows from 1 on
	products []element
	table    table
}

func newTableBuilder(f *field25519.Form) *tableBuilder {
	b := &tableBuilder{arithmetic: newArithmetic(f, field25519.Rows(arithmeticRows))}
	point := func() point { return newPoint(field25519.Rows(pointRows)) }
	b.powers = field25519.NewPowers(field25519.Rows(field25519.PowersRows))
	b.p, b.sum, b.entry = point(), point(), field25519.Rows(pointRows)
	for range field25519.Entries - 1 {
		b.made, b.products = append(b.made, point()), append(b.products, field25519.Rows(rows))
	}
	for range windows / f.Lanes() {
		b.starts = append(b.starts, point())
	}
	b.table = make(table, windows*field25519.WindowWords)
	return b
}

// build doubles p for the first entries of all windows, and adds up those of the others, a window to a lane.
func (b *tableBuilder) build() table {
	for w := range windows {
		s, lane := &b.starts[w/b.f.Lanes()], w%b.f.Lanes()
		for i, from := range []element{b.p.x, b.p.y, b.p.z, b.p.t} {
			b.f.CopyLane([]element{s.x, s.y, s.z, s.t}[i], lane, from, 0)
		}
		for i := range 4 {
			b.double(&b.p, i == 3)
		}
	}
	for g := range b.starts {
		b.projective(b.entry, &b.starts[g])
		b.sum.set(&b.starts[g])
		for e := range b.made {
			b.made[e].set(&b.sum)
			b.addProjective(&b.sum, b.entry)
		}
		b.store(g * b.f.Lanes())
	}
	return b.table
}

// store writes the entries of the windows from first on. One inverse is enough for all: of the product of the z.
func (b *tableBuilder) store(first int) {
	f, last := b.f, len(b.made)-1
	copy(b.products[0], b.made[0].z)
	for e := 1; e <= last; e++ {
		f.Multiply(b.products[e], b.products[e-1], b.made[e].z)
	}
	all, inverse := b.sum.x, b.sum.y
	b.powers.Invert(f, all, b.products[last])
	for e := last; e >= 0; e-- {
		p := &b.made[e]
		copy(inverse, all)
		if e > 0 {
			f.Multiply(inverse, all, b.products[e-1])
			f.Multiply(all, all, p.z)
		}
		f.Multiply(p.x, p.x, inverse)
		f.Multiply(p.y, p.y, inverse)
		f.Multiply(p.t, p.x, p.y)
		copy(p.z, b.c.one)
		b.projective(b.entry, p)
		b.storeEntry(first, e+1)
	}
	copy(b.entry, b.c.one)
	copy(b.entry[rows:], b.c.one)
	copy(b.entry[2*rows:], b.c.zero)
	b.storeEntry(first, 0)
}

func (b *tableBuilder) storeEntry(first, e int) {
	for lane := range b.f.Lanes() {
		for i := range 3 {
			b.f.SetEntry(b.table.window(first+lane), e, i, element(b.entry[i*rows:][:rows]), lane)
		}
	}
}
