package gpukern

import (
	"encoding/binary"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
)

var HashImage = hashImage

// Tables adds up the table entries of the bytes of in, whose ends are not put in order.
func (h *Hasher) Tables(in []byte) (sum uint32) {
	for i := 0; i < len(in); i += 4 {
		sum ^= h.h.word(i, binary.BigEndian.Uint32(in[i:]))
	}
	return sum
}

// Inspect runs the stage of literals over b, which the header pass has been over.
func (c *CPU) Inspect(b *packet.Batch) { c.find.inspect(b, c.tables.Load().Literals) }

// ForgetStreams makes all streams of c begin anew.
func (c *CPU) ForgetStreams() { c.find.streams.Forget(c.find.streams.Slots()) }

// Forget makes the streams of slots up to one begin anew.
func (s *Streams) Forget(slot int) { clear(s.of[:2*(slot+1)]) }

type Tail = carryOver

func (t *carryOver) Push(p []byte) { t.push(p) }
func (t *carryOver) Bytes() []byte { return t.bytes() }

// Stages runs single stages of the pass over a chunk.
type Stages struct {
	chunk tuple.Chunk
	look  lookup
}

func (s *Stages) Parse(b *packet.Batch)             { parse(&s.chunk, b, 0, OpParse) }
func (s *Stages) ACL(b *packet.Batch, a *acl.List)  { s.look.acl(&s.chunk, b, a) }
func (s *Stages) LPM(b *packet.Batch, r *lpm.Table) { s.look.lpm(&s.chunk, b, r) }
