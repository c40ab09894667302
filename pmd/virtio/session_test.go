package virtio

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/virtio/vhostuser"
	"github.com/millrace/millrace/pmd/virtio/vring"
	"github.com/millrace/millrace/ring"
)

// TestRingStates has every state meet every event.
func TestRingStates(t *testing.T) {
	for _, c := range []struct {
		from ringState
		ev   ringEvent
		to   ringState
	}{
		{ringStopped, ringKick, ringDisabled},
		{ringStopped, ringEnable, ringStoppedEnabled},
		{ringStopped, ringDisable, ringStopped},
		{ringStopped, ringStop, ringStopped},
		{ringStoppedEnabled, ringKick, ringRunning},
		{ringStoppedEnabled, ringEnable, ringStoppedEnabled},
		{ringStoppedEnabled, ringDisable, ringStopped},
		{ringStoppedEnabled, ringStop, ringStoppedEnabled},
		{ringDisabled, ringKick, ringDisabled},
		{ringDisabled, ringEnable, ringRunning},
		{ringDisabled, ringDisable, ringDisabled},
		{ringDisabled, ringStop, ringStopped},
		{ringRunning, ringKick, ringRunning},
		{ringRunning, ringEnable, ringRunning},
		{ringRunning, ringDisable, ringDisabled},
		{ringRunning, ringStop, ringStoppedEnabled},
	} {
		if got := ringNext[c.from][c.ev]; got != c.to {
			t.Errorf("state %d, event %d: %d, want %d", c.from, c.ev, got, c.to)
		}
	}
}

// TestFilesThatAreNoMemoryAreRefused maps regions that are not in their files.
func TestFilesThatAreNoMemoryAreRefused(t *testing.T) {
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 8192); err != nil {
		t.Fatal(err)
	}
	event, err := newEventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(event)
	for what, c := range map[string]struct {
		fd     int
		region vhostuser.MemRegion
	}{
		"a byte too long":     {fd, vhostuser.MemRegion{Size: 8193}},
		"a byte too far":      {fd, vhostuser.MemRegion{Size: 4096, Offset: 4097}},
		"behind the file":     {fd, vhostuser.MemRegion{Size: 1, Offset: 8192}},
		"empty":               {fd, vhostuser.MemRegion{}},
		"sums that overflow":  {fd, vhostuser.MemRegion{Size: 1<<64 - 1, Offset: 4096}},
		"the same, otherwise": {fd, vhostuser.MemRegion{Size: 4096, Offset: 1<<64 - 4096}},
		"an eventfd":          {event, vhostuser.MemRegion{Size: 4096}},
		"a folder":            {openFolder(t), vhostuser.MemRegion{Size: 1}},
		"nothing":             {-1, vhostuser.MemRegion{Size: 1}},
	} {
		if m, err := mapRegion(c.fd, c.region); !errors.Is(err, ErrGuest) {
			t.Errorf("%s: %+v, %v", what, m, err)
		}
	}
	m, err := mapRegion(fd, vhostuser.MemRegion{Size: 100, Offset: 5000})
	if err != nil || len(m.mem) != 100 || m.sealed {
		t.Fatal(m, err)
	}
	m.unmap()
}

func openFolder(t *testing.T) int {
	f, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}

// TestWrongRequestsEndTheSession sends requests that contradict the device.
func TestWrongRequestsEndTheSession(t *testing.T) {
	u64, state := vhostuser.U64Payload, func(i, n uint32) []byte { return vhostuser.VringState{Index: i, Num: n}.Append(nil) }
	for what, c := range map[string]struct {
		m    vhostuser.Message
		want error
	}{
		"features that were not offered":          {vhostuser.Message{Request: vhostuser.SetFeatures, Payload: u64(1 << 60)}, ErrFeatures},
		"protocol features that were not offered": {vhostuser.Message{Request: vhostuser.SetProtocolFeatures, Payload: u64(1 << 1)}, ErrFeatures},
		"a ring that is not there":                {vhostuser.Message{Request: vhostuser.SetVringNum, Payload: state(2, 64)}, vhostuser.ErrProtocol},
		"a ring of no size":                       {vhostuser.Message{Request: vhostuser.SetVringNum, Payload: state(0, 0)}, vhostuser.ErrProtocol},
		"a ring that is too long":                 {vhostuser.Message{Request: vhostuser.SetVringNum, Payload: state(0, 1<<15+1)}, vhostuser.ErrProtocol},
		"a log of writes":                         {vhostuser.Message{Request: vhostuser.SetVringAddr, Payload: vhostuser.VringAddr{Flags: 1}.Append(nil)}, vhostuser.ErrProtocol},
		"an MTU that is too large":                {vhostuser.Message{Request: vhostuser.NetSetMTU, Payload: u64(9000)}, ErrFeatures},
		"a region that was never added":           {vhostuser.Message{Request: vhostuser.RemMemReg, Payload: vhostuser.MemRegPayload(vhostuser.MemRegion{Size: 1})}, vhostuser.ErrProtocol},
		"a region without a file":                 {vhostuser.Message{Request: vhostuser.AddMemReg, Payload: vhostuser.MemRegPayload(vhostuser.MemRegion{Size: 1})}, vhostuser.ErrProtocol},
		"standard input for notifications":        {vhostuser.Message{Request: vhostuser.SetVringCall, Payload: u64(0), FDs: []int{openFolder(t)}}, vhostuser.ErrProtocol},
	} {
		g := newGuest(t, 0)
		s, far := g.connect()
		if err := far.send(&c.m); err != nil {
			t.Fatal(err)
		}
		if err := s.run(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
		s.end(nil)
		_ = s.conn.Close()
		far.sock.Close()
	}
}

// hostileBackend is a front end's queue and the device's side of its rings, which a test plays.
type hostileBackend struct {
	q    *FrontendQueue
	in   *vring.Device // the ring of packets to the driver
	pool *ring.Pool
	b    *packet.Batch
}

func newHostileBackend(t *testing.T, features uint64) *hostileBackend {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 256, Huge: ring.HugeOff, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	pool, err := arena.Cut(0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := OpenFrontend(Config{Path: t.TempDir() + "/none", Pools: []*ring.Pool{pool}, Ring: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil || pool.Free() != pool.Size() {
			t.Errorf("%d of %d frames are free, %v", pool.Free(), pool.Size(), err)
		}
	})
	q := f.Queues[0]
	if err := q.prepare(features); err != nil {
		t.Fatal(err)
	}
	q.attach(features)
	memory, err := vring.NewMemory([]vring.Region{{Guest: arenaBase, User: arenaBase, Mem: arena.Mem}, {Guest: ringsBase, User: ringsBase, Mem: f.rings.mem}})
	if err != nil {
		t.Fatal(err)
	}
	desc, avail, _ := vring.Layout(16, false)
	in, err := vring.NewDevice(vring.Config{Size: 16, Memory: memory, Desc: ringsBase, Avail: ringsBase + uint64(desc), Used: ringsBase + uint64(desc+avail)})
	if err != nil {
		t.Fatal(err)
	}
	h := &hostileBackend{q, in, pool, packet.NewBatch(arena.View(), 8)}
	if _, err := q.Rx(1, h.b); err != nil { // which offers frames
		t.Fatal(err)
	}
	return h
}

// TestHostileBackend returns buffers with lengths and numbers that cannot be: the packet is counted, or the connection ends, and no frame
// is lost.
func TestHostileBackend(t *testing.T) {
	const merge = featureVersion1 | featureMrgRxbuf
	for what, c := range map[string]struct {
		features      uint64
		buffers       uint16
		written, more uint32 // bytes of the first buffer and, unless 0, of a second one
		broken        bool
		good, invalid uint64
	}{
		"a good packet":              {merge, 1, 12 + 60, 0, false, 1, 0},
		"two buffers":                {merge, 2, 12 + 60, 60, false, 1, 0},
		"a byte more than there is":  {merge, 1, 2048 - 256 + 12 + 1, 0, true, 0, 0},
		"no whole header":            {merge, 1, 11, 0, true, 0, 0},
		"a header alone":             {merge, 1, 12, 0, false, 0, 1},
		"no buffer at all":           {merge, 0, 12 + 60, 0, false, 0, 1},
		"a buffer that is missing":   {merge, 2, 12 + 60, 0, true, 0, 0},
		"an empty second buffer":     {merge, 2, 12 + 60, 1 << 31, true, 0, 0},
		"more buffers than a batch":  {merge, 9, 12 + 60, 60, true, 0, 0},
		"buffers without mergeable":  {featureVersion1, 7, 12 + 60, 0, false, 1, 0},
		"longer than the MTU allows": {merge, 1, 12 + 1515, 0, false, 0, 1},
	} {
		h := newHostileBackend(t, c.features)
		var chain vring.Chain
		for i, n := range []uint32{c.written, c.more} {
			if n == 0 {
				continue
			}
			if ok, err := h.in.Take(&chain); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if i == 0 {
				clear(chain.Out[0][:100])
				chain.Out[0][10] = byte(c.buffers)
			}
			h.in.Return(&chain, n)
		}
		h.in.Publish()
		_, err := h.q.Rx(1, h.b)
		h.pool.PutBatch(h.b)
		if err == nil {
			_, err = h.q.Rx(1, h.b)
			h.pool.PutBatch(h.b)
		}
		if c.broken != errors.Is(err, ErrGuest) || c.broken != errors.Is(err, pmd.ErrDown) || !c.broken && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if s := h.q.Info().Stats; s.RxPackets != c.good || s.RxInvalid != c.invalid {
			t.Errorf("%s: %+v", what, s)
		}
	}
}
