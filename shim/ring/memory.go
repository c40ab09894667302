package ring

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sizes and offsets of ring.h, in bytes. A test compares them with what a C compiler says.
const (
	Magic   = 0x4d52494e // "MRIN"
	Version = 1

	headerSize = 4096 // before the first ring's bytes

	magicAt   = 0
	versionAt = 4
	sizeAt    = 8
	stateAt   = 64 // written by the node alone
	shutAt    = 68
	finAt     = 72

	directionAt   = 256
	directionSize = 256
	headAt        = 0 // of a direction: the consumer's line
	wantAt        = 4
	takenAt       = 8
	tailAt        = 64 // the producer's line
	doorbellsAt   = 68
	notifierAt    = 128 // both sides
	spaceAt       = 192 // both sides, rarely
	fillAt        = 196
	locksAt       = 2048
)

// State says how the bytes of the socket travel. The node writes it.
type State uint32

// The states.
const (
	Connecting State = iota // the handshake is not complete
	Open                    // by the rings
	Moved                   // by the AF_UNIX socket, for good
	Closed                  // the node's end is closed: what is in the ring may still be read
	Failed                  // the connection has failed: the program's writes fail, and what came before goes on to come
)

// What the consumer of a ring wants to be woken for (struct shim_direction, notifier).
const (
	notifierArmed      = 0 // by the next byte
	notifierDisarmed   = 1 // by nothing: it has been woken, or polls
	notifierSuppressed = 2 // by more than want bytes: it spins
	notifierAsleep     = 3 // by the next byte, which it takes; by one more if there are more than want bytes
	notifierWoken      = 4 // as notifierDisarmed after notifierAsleep, with one byte
)

// ErrViolation is that the other side has written what no correct program can have written.
var ErrViolation = errors.New("ring: index out of bounds")

// DefaultSize is the usual size of each of the two rings, in bytes: two bursts of a loop. It is a power of two.
const DefaultSize = 128 << 10

// Memory is the shared memory of one connection.
type Memory struct {
	b    []byte
	size uint32
	In   Consumer // from the program
	Out  Producer // to the program
}

// Create makes shared memory with two rings of size bytes, a power of two. It returns the descriptor for the program,
// which the caller closes. No holder of the descriptor can change the size of the memory.
func Create(size int) (*Memory, int, error) {
	b, fd, err := sealed("millrace-ring", headerSize, size)
	if err != nil {
		return nil, -1, err
	}
	m := &Memory{b: b, size: uint32(size)}
	m.word(magicAt).Store(Magic)
	m.word(versionAt).Store(Version)
	m.word(sizeAt).Store(uint32(size))
	m.In.half = m.direction(0)
	m.Out.half = m.direction(1)
	return m, fd, nil
}

// mfdNoExec is MFD_NOEXEC_SEAL.
const mfdNoExec = 8

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

func (m *Memory) word(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&m.b[at])) }

func (m *Memory) direction(i int) half {
	at := directionAt + i*directionSize
	data := headerSize + i*int(m.size)
	return half{
		head: m.word(at + headAt), want: m.word(at + wantAt), tail: m.word(at + tailAt), doorbells: m.word(at + doorbellsAt),
		notifier: m.word(at + notifierAt), space: m.word(at + spaceAt), fill: m.word(at + fillAt),
		data: m.b[data : data+int(m.size)],
	}
}

// SetState publishes how the bytes travel from now on.
func (m *Memory) SetState(s State) { m.word(stateAt).Store(uint32(s)) }

// Shut reports whether the program has shut down its direction. What is in the ring then is the last of it.
func (m *Memory) Shut() bool { return m.word(shutAt).Load() != 0 }

// Finish says that nothing follows what is in the ring to the program. False is that this is empty already: the caller shuts
// the socket down, as otherwise the program does that reads the last byte, with a doorbell byte.
func (m *Memory) Finish() bool {
	m.word(finAt).Store(1)
	n, err := m.Out.Used()
	return err != nil || n > 0
}

// Close unmaps the memory. Nothing of m may be used after it.
func (m *Memory) Close() error {
	b := m.b
	*m = Memory{}
	return unix.Munmap(b)
}

// half is one direction, as both of its sides see it.
type half struct {
	head, want, tail, doorbells *atomic.Uint32
	notifier, space, fill       *atomic.Uint32
	data                        []byte
	own                         uint32 // the index that this side publishes
}

// pieces returns n bytes from index at on, in order.
func (h *half) pieces(at, n uint32) [2][]byte {
	size := uint32(len(h.data))
	from := at & (size - 1)
	first := min(n, size-from)
	return [2][]byte{h.data[from : from+first], h.data[:n-first]}
}

// Drain takes all bytes out of both rings, which neither side uses any more.
func (m *Memory) Drain() (fromProgram, toProgram []byte, err error) {
	in, err := m.In.Peek(int(m.size))
	if err != nil {
		return nil, nil, err
	}
	used, err := m.Out.Used()
	if err != nil {
		return nil, nil, err
	}
	out := m.Out.pieces(m.Out.own-uint32(used), uint32(used))
	return append(append([]byte{}, in[0]...), in[1]...), append(append([]byte{}, out[0]...), out[1]...), nil
}
