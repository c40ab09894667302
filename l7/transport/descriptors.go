package transport

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Bounds of Descriptors. What is kept is for the admin socket, log files, probes and files that a reload reads.
const (
	keptShare    = 16 // of the limit, one part
	keptLeast    = 32
	keptMost     = 256
	usableLeast  = 16 // connections at a time, however low the limit is
	clientsShare = 4  // of what connections may use, all but one part
	filesShare   = 4  // of the same, one part
	backendShare = 8  // of the same, one part that files leave
)

// Descriptors shares the file descriptors of a process: clients get three quarters of what connections may use, backends get the rest
// too, and some are kept for all else. Without it clients that only open connections take every one: requests get no backend, and
// neither the admin socket nor a log file can be opened. Files that are open for responses get at most a quarter, of which they leave
// backends half. A nil *Descriptors sets no bounds.
type Descriptors struct {
	limit   int64 // of the process, RLIMIT_NOFILE
	usable  int64 // by connections
	clients int64 // most connections that were accepted

	open      atomic.Int64 // connections
	accepted  atomic.Int64 // those of clients
	files     atomic.Int64 // open for responses
	shortages atomic.Uint64
	short     chan struct{}
}

// NewDescriptors returns the bounds that follow from RLIMIT_NOFILE and from what the process has open.
func NewDescriptors() (*Descriptors, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, fmt.Errorf("transport: getrlimit: %w", err)
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("transport: the open descriptors: %w", err)
	}
	return newDescriptors(int64(min(limit.Cur, 1<<40)), int64(len(list))), nil
}

func newDescriptors(limit, used int64) *Descriptors {
	d := &Descriptors{limit: limit, short: make(chan struct{}, 1)}
	d.usable = max(limit-used-min(max(limit/keptShare, keptLeast), keptMost), usableLeast)
	d.clients = d.usable - d.usable/clientsShare
	return d
}

// DescriptorUse is how many descriptors connections have and may have.
type DescriptorUse struct {
	Limit     int64  // of the process
	Usable    int64  // by connections
	Most      int64  // by those of clients
	Open      int64  // connections
	Clients   int64  // those of clients
	Files     int64  // open for responses
	Shortages uint64 // how often accepting paused, a backend could not be dialed, or a file not be kept open
}

// Use returns the present use. Any goroutine may call it.
func (d *Descriptors) Use() (u DescriptorUse) {
	if d == nil {
		return u
	}
	return DescriptorUse{
		Limit: d.limit, Usable: d.usable, Most: d.clients, Open: d.open.Load(), Clients: d.accepted.Load(), Files: d.files.Load(),
		Shortages: d.shortages.Load(),
	}
}

// Short returns a channel that has a value after a shortage.
func (d *Descriptors) Short() <-chan struct{} { return d.short }

// mayAccept reports whether a client may have another descriptor. Loops that ask at the same time exceed the bound by one each.
func (d *Descriptors) mayAccept() bool {
	return d == nil || d.accepted.Load() < d.clients && d.mayDial()
}

// mayDial reports whether a connection to a backend may have another descriptor.
func (d *Descriptors) mayDial() bool { return d == nil || d.open.Load()+d.files.Load() < d.usable }

// TakeFile counts a file that is open for responses, and reports whether it may be.
func (d *Descriptors) TakeFile() bool {
	if d == nil {
		return true
	}
	n := d.files.Add(1)
	if n <= d.usable/filesShare && d.open.Load()+n <= d.usable-d.usable/backendShare {
		return true
	}
	d.files.Add(-1)
	d.ranShort()
	return false
}

// ReturnFile ends what TakeFile has counted.
func (d *Descriptors) ReturnFile() {
	if d != nil {
		d.files.Add(-1)
	}
}

// ranShort counts and reports a shortage.
func (d *Descriptors) ranShort() {
	if d == nil {
		return
	}
	d.shortages.Add(1)
	select {
	case d.short <- struct{}{}:
	default: // it has been reported, and not seen yet
	}
}

// count counts a connection, or one less.
func (d *Descriptors) count(client bool, n int64) {
	if d == nil {
		return
	}
	if d.open.Add(n); client {
		d.accepted.Add(n)
	}
}
