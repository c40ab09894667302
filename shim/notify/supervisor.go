package notify

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim"
)

// Supervisor answers the calls of one program and its children.
type Supervisor struct {
	// KernelInterfaces is that the program sees the interfaces of the kernel, not those of the stack. It is set before Run.
	KernelInterfaces bool

	// NodeGone is called once for each process of the program whose call finds that the node has ended. Nil: nothing is done. It is set before
	// Run.
	NodeGone func(process int)

	// Rebinds is that listeners and bound UDP sockets are made again with the next node. It is set before Run.
	Rebinds bool

	memory memory
	making sync.Mutex // of a socket, by make

	notified sync.Map      // processes that NodeGone was called with
	losing   sync.Mutex    // of lost
	ends     atomic.Uint32 // accepts of listeners whose node has gone

	listener listener
	client   *shim.Client
	waits    *waiter
	reported reports

	idle, readers atomic.Int32
	over          atomic.Bool
	failed        chan error
}

// A reader is a goroutine that receives calls and answers them, with a thread while it does so. Each that receives one
// leaves another one waiting. Calls that wait for the network need none.
const (
	idleReaders = 4
	maxReaders  = 256
)

// New returns a Supervisor for the filter with the descriptor fd (Install), which it owns from then on. client asks the node.
func New(fd int, client *shim.Client) (*Supervisor, error) {
	w, err := newWaiter()
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	s := &Supervisor{listener: listener(fd), client: client, waits: w, failed: make(chan error, 1)}
	s.listener.wakeOnSameCPU()
	return s, nil
}

// Run answers calls until no task has the filter any more, which is not an error. After another end the process is to
// end, too: calls that the filter chooses fail with ENOSYS then, and would wait for ever otherwise. It is called once.
func (s *Supervisor) Run() error {
	s.idle.Store(1)
	s.readers.Store(1)
	go s.read()
	go s.waits.run()
	go s.awaitEnd()
	err := <-s.failed
	unix.Close(int(s.listener))
	s.waits.close()
	s.client.Close()
	s.reported.finish()
	return err
}

// fail ends Run.
func (s *Supervisor) fail(err error) {
	s.over.Store(true)
	select {
	case s.failed <- err:
	default:
	}
}

// awaitEnd waits until the last task with the filter has ended.
func (s *Supervisor) awaitEnd() {
	p := []unix.PollFd{{Fd: int32(s.listener)}}
	for {
		_, err := unix.Poll(p, -1)
		switch {
		case err == unix.EINTR:
		case err != nil:
			s.fail(fmt.Errorf("notify: poll: %w", err))
			return
		case p[0].Revents != 0:
			s.fail(nil)
			return
		}
	}
}

// read is a reader.
func (s *Supervisor) read() {
	defer s.readers.Add(-1)
	c := call{s: s}
	for {
		switch err := s.listener.receive(&c.notification); err {
		case nil:
		case unix.EINTR, unix.ENOENT:
			if s.over.Load() {
				return
			}
			continue
		default:
			if s.over.Load() {
				return
			}
			s.fail(fmt.Errorf("notify: receiving a system call: %w", err))
			return
		}
		if s.idle.Add(-1) == 0 && s.readers.Load() < maxReaders {
			s.idle.Add(1)
			s.readers.Add(1)
			go s.read()
		}
		c.serve()
		if s.idle.Add(1) > idleReaders {
			s.idle.Add(-1)
			return
		}
	}
}
