package pmd

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
)

// absent is the driver of a queue whose interface is gone: its link is down.
type absent struct{ info Info }

// NewAbsent returns a driver that takes the place of one whose interface is gone, until there is another: Rx and Tx return
// ErrDown. It is described as that one, without its file and its counters.
func NewAbsent(of Driver) Driver {
	info := of.Info()
	info.Stats, info.FD, info.Notifier, info.Placer = Stats{}, -1, nil, nil
	return &absent{info}
}

func (a *absent) Rx(clock.Time, *packet.Batch) (int, error) { return 0, a.fail("rx") }
func (a *absent) Tx(clock.Time, *packet.Batch) (int, error) { return 0, a.fail("tx") }
func (a *absent) Info() Info                                { return a.info }
func (a *absent) Close() error                              { return nil }

func (a *absent) fail(op string) error {
	return &OpError{Op: op, Device: a.info.Device, Queue: a.info.Queue, Err: ErrDown}
}
