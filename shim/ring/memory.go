package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// State selects how the bytes of the socket travel. The node writes it.
type State uint32

// The states.
const (
	Connecting State = stateConnecting // the handshake is not complete
	Open       State = stateOpen       // by the rings
	Moved      State = stateMoved      // by the AF_UNIX socket, for good
	Closed     State = stateClosed     // the node's end is closed: what is in the ring may still be read
	Failed     State = stateFailed     // the connection has failed: the program's writes fail, and what came before may be read
)

// ErrViolation reports a word that no correct program can have written.
var ErrViolation = errors.New("ring: index out of bounds")

// DefaultSize is the usual size of each of the two rings, in bytes: two bursts of a loop. It is a power of two.
const DefaultSize = 128 << 10

// page is mapped shared memory: a header and two rings.
type page struct {
	b    []byte
	size int // of each ring
}

func (p *page) word(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&p.b[at])) }

func (p *page) long(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&p.b[at])) }

// direction is one ring, as both of its ends see it.
type direction struct {
	tail, notified, head, arm *atomic.Uint64
	space, gone, freed        *atomic.Uint32
	data                      []byte
}

func (p *page) direction(i int) direction {
	at, data := pageDirectionAt+i*directionSize, header+i*p.size
	return direction{
		tail: p.long(at + directionTailAt), notified: p.long(at + directionNotifiedAt), space: p.word(at + directionSpaceAt),
		gone: p.word(at + directionGoneAt),
		head: p.long(at + directionHeadAt), arm: p.long(at + directionArmAt), freed: p.word(at + directionFreedAt),
		data: p.b[data : data+p.size],
	}
}

// pieces returns n bytes from index at on, in order.
func (d *direction) pieces(at uint64, n int) [2][]byte {
	size := len(d.data)
	from := int(at & uint64(size-1))
	first := min(n, size-from)
	return [2][]byte{d.data[from : from+first], d.data[:n-first]}
}

// A wakeup word (arm, notified) has a state in its low byte, an epoch above, and a count or size in its high half.
func wakeup(state uint8, epoch, high uint32) uint64 {
	return uint64(high)<<highShift | uint64(epoch&epochMask)<<epochShift | uint64(state)
}

func stateOf(w uint64) uint8  { return uint8(w) }
func epochOf(w uint64) uint32 { return uint32(w) >> epochShift }
func highOf(w uint64) uint32  { return uint32(w >> highShift) }

// answerTo returns what the producer has done for the epoch of arm.
func answerTo(arm, notified uint64) uint8 {
	if stateOf(notified) == answerEnded {
		return answerEnded
	}
	if epochOf(arm) != epochOf(notified) {
		return answerNone
	}
	return stateOf(notified)
}

// Memory is the shared memory of a connection between the node and a program.
type Memory struct {
	page
	In  Consumer // from the program
	Out Producer // to the program
}

// Ends says what is at the two ends of memory. Each of them learns it from who has made the memory, never from its page, which the
// other end may have written to.
type Ends uint32

// The ends of a Memory, and those of a Direct.
const (
	NodeEnds    Ends = endsNode
	ProgramEnds Ends = endsPrograms
)

// Create makes shared memory with two rings of size bytes, a power of two. It returns the descriptor for the program,
// which the caller closes. No holder of the descriptor can change the size of the memory.
func Create(size int) (*Memory, int, error) {
	p, fd, err := sealed("millrace-ring", size)
	if err != nil {
		return nil, -1, err
	}
	m := &Memory{page: p}
	m.In.direction = m.direction(0)
	m.Out.direction = m.direction(1)
	return m, fd, nil
}

// SetState publishes how the bytes travel from now on.
func (m *Memory) SetState(s State) { m.word(pageStateAt).Store(uint32(s)) }

// Shut reports whether the program has shut down its direction. What is in the ring then is the last of it.
func (m *Memory) Shut() bool { return m.word(pageShutAt).Load() != 0 }

// Finish publishes that nothing follows what is in the ring to the program. It returns false if that is empty already: then the
// caller shuts the socket down. Otherwise the program does that reads the last byte, and writes a doorbell byte.
func (m *Memory) Finish() bool {
	m.word(pageFinAt).Store(1)
	n, err := m.Out.Used()
	return err != nil || n > 0
}

// Close unmaps the memory. Nothing of m may be used after it.
func (m *Memory) Close() error {
	b := m.b
	*m = Memory{}
	return unix.Munmap(b)
}

// Drain takes all bytes out of both rings, which neither side uses any more.
func (m *Memory) Drain() (fromProgram, toProgram []byte, err error) {
	in, err := m.In.Peek(m.size)
	if err != nil {
		return nil, nil, err
	}
	used, err := m.Out.Used()
	if err != nil {
		return nil, nil, err
	}
	out := m.Out.pieces(m.Out.own-uint64(used), used)
	return append(append([]byte{}, in[0]...), in[1]...), append(append([]byte{}, out[0]...), out[1]...), nil
}

// Direct is the memory of a connection between two programs. The node makes it and has no end in it: what it reads are claims of
// both programs.
type Direct struct {
	page
	last [2]uint64
}

// CreateDirect makes shared memory with two rings of size bytes, a power of two. It returns the descriptor for both programs, which
// the caller closes. No holder of the descriptor can change the size of the memory.
func CreateDirect(size int) (*Direct, int, error) {
	p, fd, err := sealed("millrace-direct", size)
	if err != nil {
		return nil, -1, err
	}
	return &Direct{page: p}, fd, nil
}

// Moved reports whether both directions go by the socket by now.
func (d *Direct) Moved() bool {
	for i := range 2 {
		if w := d.direction(i); w.tail.Load()&tailLeft == 0 && w.gone.Load() == 0 {
			return false
		}
	}
	return true
}

// mostCounted bounds what Count believes of one direction, in bytes: more than two programs can move between two calls.
const mostCounted = 1 << 40

// Count returns how many bytes the programs have read from both rings since the last call.
func (d *Direct) Count() (n uint64) {
	for i := range 2 {
		w := d.direction(i)
		head := w.head.Load()
		if more := head - d.last[i]; more < mostCounted {
			n += more
		}
		d.last[i] = head
	}
	return n
}

// End makes both programs look at their sockets, because one is closed, and wakes threads that sleep by futex(2). One that is just
// about to sleep may miss that: it looks again after a second.
func (d *Direct) End() {
	d.word(pageEndedAt).Store(1)
	for i := range 2 {
		at := pageDirectionAt + i*directionSize
		for _, word := range []*atomic.Uint32{d.word(at + directionNotifiedAt + lowHalf), d.word(at + directionFreedAt)} {
			_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, math.MaxInt32, 0, 0, 0) // it is mapped
		}
	}
}

const futexWake = 1

// lowHalf is where the low half of a 64-bit word is.
var lowHalf = int(binary.NativeEndian.Uint32([]byte{0, 0, 0, 4}) & 4)

// Close unmaps the memory. Nothing of d may be used after it.
func (d *Direct) Close() error {
	b := d.b
	d.b = nil
	return unix.Munmap(b)
}

// mfdNoExec is MFD_NOEXEC_SEAL.
const mfdNoExec = 8

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// sealed makes memory of a header and two rings whose size cannot change, and maps it.
func sealed(name string, size int) (p page, fd int, err error) {
	if size < 4096 || size > 1<<30 || size&(size-1) != 0 {
		return p, -1, fmt.Errorf("ring: size %d is no power of two", size)
	}
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|mfdNoExec)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return p, -1, fmt.Errorf("ring: memfd_create: %w", err)
	}
	total := header + 2*size
	if err = unix.Ftruncate(fd, int64(total)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	p.size = size
	if err == nil {
		p.b, err = unix.Mmap(fd, 0, total, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return p, -1, fmt.Errorf("ring: %w", err)
	}
	p.word(pageMagicAt).Store(magic)
	p.word(pageVersionAt).Store(version)
	p.word(pageSizeAt).Store(uint32(size))
	return p, fd, nil
}
