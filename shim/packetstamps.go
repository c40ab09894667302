package shim

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// SO_TIMESTAMPING (linux/net_tstamp.h). Times of received datagrams are control messages. Those of sent ones come by the queue of errors: when
// the stack has taken the datagram, and handed it to the device. The stack keeps no copy of it, so that a program that asks for sent ones has to
// ask for times alone (OPT_TSONLY) too: others learn by the errno that they do not come.
const (
	stampingReceived = unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE
	stampingSent     = unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_TX_SCHED
	stampingAll      = 1<<17 - 1
)

// stamping is SO_TIMESTAMPING. No device has times of its own here, and UDP no acknowledgements: TX_HARDWARE and TX_ACK have no effect, as on
// Linux then.
func stamping() optionSpec {
	return optionSpec{
		set: func(k *sock, n optionName, v []byte) error {
			i, err := intOf(n, v)
			if err != nil {
				return err
			}
			if i&^stampingAll != 0 || i&stampingSent != 0 && i&unix.SOF_TIMESTAMPING_OPT_TSONLY == 0 {
				return syscall.EINVAL
			}
			if k.options.kept == nil {
				k.options.kept = map[optionName]int32{}
			}
			was := k.options.kept[n]
			k.options.kept[n] = int32(i)
			k.setWant(wantStamping, i&stampingReceived == stampingReceived)
			if u := k.packets(); u != nil {
				u.stamps.set(uint32(i), was&unix.SOF_TIMESTAMPING_OPT_ID == 0)
				u.reports.Store(k.queues())
			}
			return nil
		},
		get: func(k *sock, n optionName, b []byte) ([]byte, error) { // struct so_timestamping: flags and a clock
			return appendInt(appendInt(b, int(k.options.kept[n])), 0), nil
		},
	}
}

// stampFlags returns what a UDP socket has of SO_TIMESTAMPING.
func (k *sock) stampFlags() uint32 { return uint32(k.options.kept[nameS(unix.SO_TIMESTAMPING)]) }

// queues reports whether the socket has a queue of errors.
func (k *sock) queues() bool { return k.options.udp.QueueErrors || k.stampFlags()&stampingSent != 0 }

// Kinds of times, which are the ee_info of entries.
const (
	stampSent      = 0 // SCM_TSTAMP_SND
	stampScheduled = 1 // SCM_TSTAMP_SCHED
)

// maxStamps bounds the times that wait in a socket: later ones are lost.
const maxStamps = 256

// sentStamp is the time of a sent datagram.
type sentStamp struct {
	kind, id uint32
	at       time.Time // zero where the program does not ask for software's times
}

// sentStamps are the times of what a socket has sent.
type sentStamps struct {
	on atomic.Bool // sent has something to do

	mu    sync.Mutex
	flags uint32 // of SO_TIMESTAMPING
	next  uint32 // identifier of the next datagram, with OPT_ID
	queue []sentStamp
}

func (s *sentStamps) set(flags uint32, begins bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if begins {
		s.next = 0
	}
	s.flags = flags
	s.on.Store(flags&stampingSent != 0 || flags&unix.SOF_TIMESTAMPING_OPT_ID != 0)
}

// sent notes that a datagram was sent.
func (s *sentStamps) sent(now time.Time) (noted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := sentStamp{}
	if s.flags&unix.SOF_TIMESTAMPING_OPT_ID != 0 {
		one.id = s.next
		s.next++
	}
	if s.flags&unix.SOF_TIMESTAMPING_SOFTWARE != 0 {
		one.at = now
	}
	for _, k := range []struct{ flag, kind uint32 }{{unix.SOF_TIMESTAMPING_TX_SCHED, stampScheduled}, {unix.SOF_TIMESTAMPING_TX_SOFTWARE, stampSent}} {
		if one.kind = k.kind; s.flags&k.flag != 0 && len(s.queue) < maxStamps {
			s.queue, noted = append(s.queue, one), true
		}
	}
	return noted
}

// take takes the oldest time.
func (s *sentStamps) take() (one sentStamp, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return one, false
	}
	one = s.queue[0]
	s.queue = slices.Delete(s.queue, 0, 1)
	return one, true
}

func (s *sentStamps) waiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}

// stamped notes a sent datagram, on the home loop, and wakes the program.
func (u *packets) stamped() {
	if u.stamps.on.Load() && u.stamps.sent(time.Now()) {
		u.k.mu.Lock()
		defer u.k.mu.Unlock()
		u.notify()
	}
}

// queued returns the entry of the queue of errors that has the time.
func (s *sentStamp) queued() socket.QueuedError {
	return socket.QueuedError{Err: syscall.ENOMSG, Origin: socket.OriginStamp, Info: s.kind, ID: s.id, Time: s.at}
}
