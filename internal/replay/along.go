package replay

import (
	"errors"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/flow"
)

// alongFlows is how many flows literals are followed in at once: 60 MiB with both tables, of which
// the system gives what is used. Packets of flows beyond are texts of their own.
const alongFlows = 1 << 18

// along is what an engine needs to find literals that begin in one packet of a flow and end in a later one.
type along struct {
	flows   *flow.Table
	streams *gpukern.Streams
}

// newAlong makes the tables and adds them to the configuration of the engine, which is closed before them.
func newAlong(cfg *gpukern.Config) (*along, error) {
	flows, err := flow.New(flow.Config{Flows: alongFlows})
	if err != nil {
		return nil, err
	}
	streams, err := gpukern.NewStreams(int(flows.Slots()))
	if err != nil {
		return nil, errors.Join(err, flows.Close())
	}
	cfg.Ops |= gpukern.OpFlow
	cfg.Flows, cfg.Streams = flows, streams
	return &along{flows, streams}, nil
}

func (a *along) close() error { return errors.Join(a.streams.Close(), a.flows.Close()) }
