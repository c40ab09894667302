package conformance_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/conformance"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/virtio"
	"github.com/millrace/millrace/ring"
)

// copies are the capabilities of a vhost-user back end; a front end has its frames in the rings besides.
const copies = pmd.CapPoll | pmd.CapMultiBuf | pmd.CapOffload | pmd.CapOffloadUDP

// virtioRing is the number of frames that a front end keeps for packets to receive.
const virtioRing = 64

// ends opens a front end or a back end, whose only queue is the driver.
type ends func(virtio.Config) (pmd.Driver, func() error, error)

func frontend(c virtio.Config) (pmd.Driver, func() error, error) {
	f, err := virtio.OpenFrontend(c)
	if err != nil {
		return nil, nil, err
	}
	return f.Queues[0], f.Close, nil
}

func backend(c virtio.Config) (pmd.Driver, func() error, error) {
	b, err := virtio.OpenBackend(c)
	if err != nil {
		return nil, nil, err
	}
	return b.Queues[0], b.Close, nil
}

// virtioWire is a queue and its other end, which comes and goes with the link.
type virtioWire struct {
	t      testing.TB
	near   pmd.Driver
	cfg    virtio.Config // of the far end
	open   ends
	end    *otherEnd
	finish func() error
}

// socketFolder returns a folder whose name is short enough for a socket.
func socketFolder(t testing.TB) string {
	dir, err := os.MkdirTemp("", "mr-virtio")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// openVirtio opens a near end that listens and a far end that connects, or the other way round.
func openVirtio(near, far ends, cfg virtio.Config) opener {
	return func(t testing.TB, s conformance.Setup) conformance.Rig {
		pool, err := s.Arena.Cut(0)
		must(t, err)
		cfg := cfg
		cfg.Path, cfg.Ring = filepath.Join(socketFolder(t), "s"), virtioRing
		w := &virtioWire{t: t, cfg: cfg, open: far, end: &otherEnd{pool: pool, b: packet.NewBatch(s.Arena.View(), 64)}}
		cfg.Pools, w.cfg.Pools, w.cfg.Server = []*ring.Pool{s.Pool}, []*ring.Pool{pool}, !cfg.Server
		var closeNear func() error
		w.near, closeNear, err = near(cfg)
		must(t, err)
		must(t, w.link(true))
		t.Cleanup(func() { must(t, closeNear()); must(t, w.link(false)) })
		return conformance.Rig{Queue: w.near, Holders: []ring.Holder{w, pool}, Send: w.send, Recv: w.recv, Link: w.link}
	}
}

// link connects the far end, or closes it.
func (w *virtioWire) link(up bool) (err error) {
	if !up {
		if w.end.far == nil {
			return nil
		}
		w.end.far = nil
		return w.finish()
	}
	if w.end.far, w.finish, err = w.open(w.cfg); err != nil {
		return err
	}
	b := packet.NewBatch(w.end.b.Arena, 0)
	for _, q := range []pmd.Driver{w.near, w.end.far} {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := q.Rx(clock.Time(1), b); err == nil {
				break
			} else if !errors.Is(err, pmd.ErrDown) || time.Now().After(end) {
				return err
			}
		}
	}
	return nil
}

func (w *virtioWire) send(p []byte) bool {
	if w.end.far == nil {
		return false
	}
	_, _ = w.end.far.Rx(1, packet.NewBatch(w.end.b.Arena, 0)) // gives the other end free frames
	return w.end.send(p)
}

func (w *virtioWire) recv() []byte {
	if w.end.far == nil {
		return nil
	}
	return w.end.recv()
}

// Holds implements ring.Holder: the frames of the far end.
func (w *virtioWire) Holds(visit func(off uint32)) {
	if w.end.far != nil {
		w.end.far.(ring.Holder).Holds(visit)
	}
}

// TestVirtio runs both ends against each other.
func TestVirtio(t *testing.T) {
	for _, packed := range []bool{false, true} {
		for _, mtu := range []int{1500, 9000} {
			name := fmt.Sprintf("packed=%v,mtu=%d", packed, mtu)
			cfg := virtio.Config{Packed: packed, MTU: mtu}
			server := cfg
			server.Server = true
			s := conformance.Subject{Caps: copies, Shared: true, Longest: mtu + 14, Link: true}
			s.Open = openVirtio(backend, frontend, server)
			t.Run("vhost,"+name, func(t *testing.T) { conformance.Run(t, s) })
			f := s
			f.Open = openVirtio(frontend, backend, cfg)
			f.Caps |= pmd.CapZeroCopy
			f.Lends = virtioRing
			t.Run("virtio,"+name, func(t *testing.T) { conformance.Run(t, f) })
		}
	}
}
