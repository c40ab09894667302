package collective

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// frameType is the type of a frame between a rank and the coordinator: length 4 (big endian, of what follows), type 1, JSON.
type frameType uint8

const (
	frameJoin    frameType = iota + 1 // rank to coordinator: joinFrame
	frameTable                        // to rank: tableFrame
	frameReady                        // to coordinator: connected to all ranks
	frameGo                           // to rank: all ranks are
	frameSuspect                      // to coordinator: suspectFrame
	frameQuery                        // to rank: send a frameStatus
	frameStatus                       // to coordinator: statusFrame
	frameCompare                      // to coordinator: compareFrame
	frameAgree                        // to rank: compareFrame that all ranks agree to
	frameAbort                        // to rank: Error
	frameBye                          // to coordinator: the rank leaves
)

const frameMost = 16 << 20

var errFrame = errors.New("collective: a control message is damaged")

// joinFrame describes a rank to the coordinator.
type joinFrame struct {
	Addresses []string // one of each rail
	Host      string   // the same for ranks that share a machine
}

// tableFrame describes all ranks to each of them.
type tableFrame struct {
	Members []joinFrame
	Ranks   []int // their numbers in the generation before
}

// suspectFrame reports a failure that a rank sees.
type suspectFrame struct {
	Kind    Failure
	Rank    int // -1 is unknown
	Reason  string
	Context uint64
	Members []int // of the communicator
	Waits   bool  // time-out: the coordinator finds out for whom
}

// statusFrame describes what a rank does.
type statusFrame struct {
	Comms []commStatus
}

// commStatus is the state of a communicator.
type commStatus struct {
	Context uint64
	Started uint32 // operations
	Active  bool
	What    string // the last operation
	Waits   []int  // ranks
}

// operation identifies a collective operation.
type operation struct {
	Context  uint64
	Sequence uint32
}

// compareFrame is an operation of Config.Debug.
type compareFrame struct {
	operation
	What    string
	Members []int
}

// frameConn carries frames.
type frameConn struct {
	conn net.Conn
	mu   sync.Mutex // writes
}

func (c *frameConn) write(t frameType, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 5+len(body)), uint32(len(body)+1))
	b = append(append(b, byte(t)), body...)
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(handshakeTime)) // a rank that is stopped must not stop the coordinator
	_, err = c.conn.Write(b)
	return err
}

func (c *frameConn) read() (frameType, []byte, error) { return readFrame(c.conn) }

// readFrame reads a frame.
func readFrame(r io.Reader) (frameType, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 1 || n > frameMost || head[4] < byte(frameJoin) || head[4] > byte(frameBye) {
		return 0, nil, errFrame
	}
	body := make([]byte, 0, min(n-1, 64<<10)) // grows with what comes, not with what is claimed
	for uint32(len(body)) < n-1 {
		part := make([]byte, min(n-1-uint32(len(body)), 64<<10))
		if _, err := io.ReadFull(r, part); err != nil {
			return 0, nil, err
		}
		body = append(body, part...)
	}
	return frameType(head[4]), body, nil
}

// expect reads a frame of one type.
func (c *frameConn) expect(t frameType, v any) error {
	got, body, err := c.read()
	if err != nil {
		return err
	}
	if got == frameAbort {
		e := &Error{}
		if json.Unmarshal(body, e) == nil {
			return e
		}
	}
	if got != t {
		return fmt.Errorf("%w: type %d, want %d", errFrame, got, t)
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	return nil
}
