package datapath

import (
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// outerParser is the header pass over the packets of which the engine has described the inside. An engine may
// look into tunnels (packet.FlagTunnel). For the gateway only the outer headers count: it cannot know who may
// use a tunnel, and a UDP service may have the port of one. This is the only packet that is parsed twice.
type outerParser struct {
	engine *gpukern.CPU // looks into no tunnel; nil until it is needed
	batch  packet.Batch
	done   [1]*packet.Batch
}

// parse describes the first packet of chain by its outer headers.
func (o *outerParser) parse(a *packet.Arena, chain []packet.Desc) {
	if o.engine == nil {
		o.engine = gpukern.NewCPU(gpukern.Config{Ops: gpukern.OpParse | gpukern.OpChecksum, Depth: 1})
	}
	n := max(1, packet.Chain(chain))
	handed := chain[0].Flags & (packet.FlagHanded | packet.FlagHandedAgain)
	o.batch.Arena, o.batch.D = a, chain[:n]
	if o.engine.Submit(&o.batch) == nil { // it holds one, and that is taken back at once
		o.engine.Poll(o.done[:])
	}
	chain[0].Flags |= handed
}
