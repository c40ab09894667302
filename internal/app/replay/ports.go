package replay

import (
	"io"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/pcap"
	"github.com/millrace/millrace/stack"
)

// Submit implements gpukern.Engine and takes the time. The CPU engine works in Submit and Poll.
func (t *timed) Submit(b *packet.Batch) error {
	start := stack.Now()
	err := t.Engine.Submit(b)
	t.spent += stack.Now().Sub(start)
	return err
}

// Poll implements gpukern.Engine and takes the time.
func (t *timed) Poll(done []*packet.Batch) int {
	start := stack.Now()
	n := t.Engine.Poll(done)
	t.spent += stack.Now().Sub(start)
	return n
}

// window is the number of descriptors that may be between the source and the output device: a file does not run
// ahead of the device it is sent to, so that nothing is dropped for its speed. It is less than a
// loop's transmit queue holds.
const window = 4 * stack.DefaultBurst

// source is a capture as the loop's first port. Damage in the file ends it as the file's end does,
// and is kept. All of it belongs to the loop.
type source struct {
	*pcap.Driver
	mode    pcap.Mode
	left    uint64    // packets until the limit; 0 is no limit
	window  bool      // keep to the window
	rebased []rebased // packets between Rx and the handler whose first bytes the engine does not see, in their order
	inside  int       // descriptors between Rx and the output device or a drop
	damage  error
	ended   bool
}

// Rx implements pmd.Driver.
func (s *source) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if s.ended {
		return 0, io.EOF
	}
	if s.window && s.inside >= window {
		return 0, nil
	}
	first := len(b.D)
	_, err := s.Driver.Rx(now, b)
	if err != nil {
		s.ended = true
		if err != io.EOF {
			s.damage = err
		}
		err = io.EOF
	}
	s.cut(b, first)
	s.rebase(b, first)
	s.inside += len(b.D) - first
	return len(b.D) - first, err
}

// cut gives back what is beyond the limit of the packets received from descriptor first on.
func (s *source) cut(b *packet.Batch, first int) {
	packets := packet.Packets(b.D[first:])
	if s.left == 0 || packets < s.left {
		s.left -= min(s.left, packets)
		return
	}
	keep := first + packet.Chains(b.D[first:], s.left)
	s.Release(&packet.Batch{Arena: b.Arena, D: b.D[keep:]})
	b.D = b.D[:keep]
	s.left, s.ended = 0, true
}

// sink is the output device as the loop's second port: it only sends.
type sink struct {
	pmd.Driver
	src *source
}

// Rx implements pmd.Driver: what the device receives stays there.
func (s *sink) Rx(clock.Time, *packet.Batch) (int, error) { return 0, io.EOF }

// Tx implements pmd.Driver and opens the source's window again: for what was taken, and for what
// the loop drops because of an error.
func (s *sink) Tx(now clock.Time, b *packet.Batch) (int, error) {
	n, err := s.Driver.Tx(now, b)
	if err != nil {
		s.src.inside -= len(b.D)
	} else {
		s.src.inside -= n
	}
	return n, err
}

// flush gives the device time to send what it has taken: closing it would take packets back that
// wait in its ring. Tx of nothing collects what is done.
func (s *sink) flush(now clock.Time, empty *packet.Batch) error {
	for end := now.Add(20 * time.Millisecond); stack.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := s.Driver.Tx(stack.Now(), empty); err != nil {
			return err
		}
	}
	return nil
}
