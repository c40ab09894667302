package stack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// burst gives its packets in one burst, and keeps copies of what it is to send.
type burst struct {
	pool *ring.Pool
	caps pmd.Caps
	in   [][]byte
	sent [][]byte
}

func (s *burst) Rx(_ clock.Time, b *packet.Batch) (int, error) {
	before := b.Len()
	for _, p := range s.in {
		testpackets.Append(b, s.pool, p)
	}
	s.in = nil
	return b.Len() - before, nil
}

func (s *burst) Tx(_ clock.Time, b *packet.Batch) (int, error) {
	s.sent = append(s.sent, testpackets.Split(b)...)
	s.pool.PutBatch(b)
	return b.Len(), nil
}

func (s *burst) Info() pmd.Info { return pmd.Info{FD: -1, Caps: s.caps} }
func (s *burst) Close() error   { return nil }

// leftToTheDevice is a packet with the sum of the pseudo-header in its checksum field, as Linux writes it for a device.
func leftToTheDevice(s groSegment) []byte {
	p := s.bytes()
	l4 := len(p) - s.size - wire.TCPLen
	field := l4 + 16
	if s.udp {
		l4 = len(p) - s.size - wire.UDPLen
		field = l4 + 6
	} else if s.stamp != 0 {
		panic("a header without options is meant")
	}
	pseudo := wire.IPv4(p[wire.EthernetLen:]).Pseudo
	if s.six {
		pseudo = wire.IPv6(p[wire.EthernetLen:]).Pseudo
	}
	binary.BigEndian.PutUint16(p[field:], ^wire.Fold(pseudo()))
	return p
}

// TestLoopsCompleteChecksums of senders that leave them to a device that is no hardware, whether the engine verifies or not:
// packets may leave by a wire. Right and wrong ones stay as they are, and so do all that came by a wire.
func TestLoopsCompleteChecksums(t *testing.T) {
	kinds := []groSegment{newGROFlow(1, false), newGROFlow(2, true), newGROFlow(3, false), newGROFlow(4, true)}
	kinds[2].udp, kinds[3].udp = true, true
	var in, completed, asSent [][]byte
	for _, s := range kinds {
		s.stamp, s.size = 0, 301
		right, partial := s.bytes(), leftToTheDevice(s)
		s.bad = true
		wrong := s.bytes()
		in = append(in, right, partial, wrong)
		completed = append(completed, right, right, wrong)
		asSent = append(asSent, right, partial, wrong)
	}
	for _, c := range []struct {
		caps  pmd.Caps
		ops   gpukern.Ops
		want  [][]byte
		wrong uint64
	}{
		{pmd.CapPartialChecksums, gpukern.OpParse, completed, 0},
		{pmd.CapPartialChecksums, gpukern.OpParse | gpukern.OpChecksum, completed, 4},
		{0, gpukern.OpParse, asSent, 0},
		{0, gpukern.OpParse | gpukern.OpChecksum, asSent, 8},
	} {
		t.Run(fmt.Sprintf("%v/%v", c.caps, c.ops), func(t *testing.T) {
			w := newWorld(t)
			from, to := &burst{pool: w.pool, caps: c.caps, in: in}, &burst{pool: w.pool}
			l, err := NewLoop(Config{Devices: []pmd.Driver{from, to}, Pool: w.pool, Engine: gpukern.NewCPU(gpukern.Config{Ops: c.ops}), Handler: Bridge{}})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			for i := range 4 {
				l.Poll(clock.Time(i))
			}
			if len(to.sent) != len(c.want) {
				t.Fatalf("%d packets of %d were sent", len(to.sent), len(c.want))
			}
			for i := range c.want {
				if !bytes.Equal(to.sent[i], c.want[i]) {
					t.Errorf("packet %d:\n% x, want\n% x", i, to.sent[i][:60], c.want[i][:60])
				}
			}
			if got := l.Stats().WrongChecksums; got != c.wrong {
				t.Errorf("%d wrong checksums, want %d", got, c.wrong)
			}
		})
	}
}

// TestReplacedDevicesLeaveChecksums has a loop complete checksums since a device whose senders leave them took the place of a wire.
func TestReplacedDevicesLeaveChecksums(t *testing.T) {
	s := newGROFlow(1, false)
	s.stamp = 0
	w := newWorld(t)
	was, to := &burst{pool: w.pool}, &burst{pool: w.pool}
	l, err := NewLoop(Config{Devices: []pmd.Driver{was, to}, Pool: w.pool, Engine: gpukern.NewCPU(gpukern.Config{Ops: gpukern.OpParse}), Handler: Bridge{}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Replace(0, &burst{pool: w.pool, caps: pmd.CapPartialChecksums, in: [][]byte{leftToTheDevice(s)}}); err != nil {
		t.Fatal(err)
	}
	l.Poll(0)
	l.Poll(1)
	if len(to.sent) != 1 || !bytes.Equal(to.sent[0], s.bytes()) {
		t.Errorf("sent % x, want % x", to.sent, s.bytes())
	}
}
